package cncmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/vmhost"
	"rutter/log"
)

// TaskCommand has the commands for tasks of compute nodes.
func TaskCommand() *cli.Command {
	flags := []cli.Flag{term.ServersFlag(), output.TableFlag()}
	return &cli.Command{
		Name: "task", Usage: "what compute nodes are asked to do: start, list and wait for tasks", Category: "Inventory",
		Description: term.Examples(
			"rutter task run 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 nop --wait",
			"rutter task run 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 machine_boot uuid="+term.ExampleVM+" --wait",
			"rutter task list --status active",
		),
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list tasks, the newest first", Action: taskList,
				Flags: append(
					[]cli.Flag{
						&cli.StringFlag{Name: "cn", Usage: "of this compute node only: its `UUID`"},
						&cli.StringFlag{Name: "status", Usage: "only those that are `queued, active, complete or failure`"},
						&cli.IntFlag{Name: "limit", Value: 100, Usage: "at most `N` of them, up to 1000"},
					}, flags...,
				),
				Description: term.Examples("rutter task list", "rutter task list --status failure -o json"),
			},
			{
				Name: "show", Usage: "show one task", ArgsUsage: "ID", Flags: flags, Action: taskShow,
				Description: term.Examples("rutter task show 0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6"),
			},
			{
				Name: "wait", Usage: "wait until a task has ended, on whichever server; a failure is one of this command", ArgsUsage: "ID", Action: taskWait,
				Flags:       append([]cli.Flag{taskTimeoutFlag()}, flags...),
				Description: term.Examples("rutter task wait 0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6 --timeout 5m"),
			},
			{
				Name: "run", Usage: "ask a compute node to do something", ArgsUsage: "CN TASK [NAME=VALUE ...]", Action: taskRun,
				Flags: append([]cli.Flag{taskTimeoutFlag(), &cli.BoolFlag{Name: "wait", Usage: "until it has ended"}}, flags...),
				Description: term.Examples(
					"rutter task run 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 sysinfo --wait",
					"rutter task run 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 machine_update uuid="+term.ExampleVM+" quota=20",
					"rutter task run 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 command_execute 'script=uptime' --wait   # rutter agent --allow-execute",
				),
			},
		},
	}
}

func taskTimeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: time.Hour, Usage: "`TIME` after which it is given up"}
}

// waitSlice bounds the wait of one request. The next request may go to another server.
const waitSlice = 3 * time.Second

// taskArgument is the id that the command names.
func taskArgument(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", term.Usagef("want the id of one task, as in: rutter task %s 0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6", c.Command.Name)
	}
	id, err := log.ParseUUID(c.Args().First())
	if err != nil {
		return "", term.UsageError{Err: err}
	}
	return id.String(), nil
}

func taskList(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	query := url.Values{"limit": {fmt.Sprint(c.Int("limit"))}}
	for flag, name := range map[string]string{"cn": "server_uuid", "status": "status"} {
		if c.IsSet(flag) {
			query.Set(name, c.String(flag))
		}
		if flag == "cn" && c.IsSet(flag) {
			cn, err := named.ID(c, log.KindServer, c.String(flag))
			if err != nil {
				return err
			}
			query.Set(name, cn)
		}
	}
	raw, err := api.Raw(c.Context, http.MethodGet, "/cnapi/tasks?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	list := []client.Object{}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	return output.Table(c, list, func(w io.Writer) {
		output.Print(w, "ID\tTASK\tSTATUS\tCN\tMADE\tFAILURE\n")
		for _, t := range list {
			output.Printf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", output.Text(t["id"]), output.Text(t["task"]), output.Text(t["status"]), output.Text(t["server_uuid"]), output.Text(t["timestamp"]), output.Text(t["failure"]))
		}
	})
}

func taskShow(c *cli.Context) error {
	id, err := taskArgument(c)
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	task, err := api.Get(c.Context, "/cnapi/tasks/"+id, nil)
	if err != nil {
		return err
	}
	return printTask(c, task)
}

func printTask(c *cli.Context, task client.Object) error {
	return output.Table(c, task, func(w io.Writer) {
		if c.String("output") == "csv" {
			output.Print(w, "FIELD\tVALUE\n")
		}
		for _, name := range []string{"id", "task", "status", "server_uuid", "via", "timestamp", "started", "finished", "deadline", "failure", "params", "result"} {
			if value, ok := task[name]; ok {
				output.Printf(w, "%s\t%s\n", name, output.Text(value))
			}
		}
	})
}

func taskWait(c *cli.Context) error {
	id, err := taskArgument(c)
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	return awaitTask(c, api, id)
}

// errTaskFailed is the error of a task that failed.
var errTaskFailed = errors.New("the task failed")

// awaitTask waits in several requests, so that each may go to another server.
func awaitTask(c *cli.Context, api *client.Client, id string) error {
	deadline := time.Now().Add(c.Duration("timeout"))
	for {
		left := min(max(time.Until(deadline), 0), waitSlice)
		task, err := api.Get(c.Context, "/cnapi/tasks/"+id+"/wait", url.Values{"timeout": {fmt.Sprint(max(int(left/time.Second), 1))}})
		if err != nil {
			return err
		}
		status := output.Text(task["status"])
		if status != log.TaskComplete && status != log.TaskFailure {
			if time.Now().After(deadline) {
				return fmt.Errorf("task %s is %s after %s: it goes on (rutter task wait %s)", id, status, c.Duration("timeout"), id)
			}
			continue
		}
		if err := printTask(c, task); err != nil {
			return err
		}
		if status == log.TaskFailure {
			return fmt.Errorf("%w: %s", errTaskFailed, output.Text(task["failure"]))
		}
		return nil
	}
}

func taskRun(c *cli.Context) error {
	if c.NArg() < 2 {
		return term.Usagef("want a compute node and a task, as in: rutter task run 564d69b1-a178-4fbe-b36f-3f2b7fd7ed01 nop")
	}
	cn, err := named.UUID(c, log.KindServer, c.Args().First())
	if err != nil {
		return err
	}
	params := map[string]any{}
	for _, arg := range c.Args().Slice()[2:] {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return term.Usagef("%q: want NAME=VALUE", arg)
		}
		params[name] = vmhost.FieldValue(name, value)
		if name == "script" {
			params[name] = value
		}
	}
	if c.Duration("timeout") < time.Second {
		return term.Usagef("--timeout %s: want a second or more", c.Duration("timeout"))
	}
	body, err := json.Marshal(map[string]any{"task": c.Args().Get(1), "params": params, "timeout": int(c.Duration("timeout") / time.Second)})
	if err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	made, err := api.Create(c.Context, "/cnapi/servers/"+cn.String()+"/tasks", body)
	if err != nil {
		return err
	}
	if c.Bool("wait") {
		return awaitTask(c, api, output.Text(made["id"]))
	}
	return output.One(c, made, func(w io.Writer) { output.Printf(w, "%s\n", output.Text(made["id"])) })
}
