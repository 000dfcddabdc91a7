// Command rutter is the one binary of Rutter: server, agent, tools. It wires
// the packages together and knows nothing that they could know themselves.
//
// Exit codes: 0 done; 1 failed; 2 wrong usage; 3 refused by the log (the
// change was understood and not accepted); 4 no server could be reached; 130
// interrupted before it was done.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/agentcmd"
	"rutter/cmd/rutter/applycmd"
	"rutter/cmd/rutter/backup"
	"rutter/cmd/rutter/benchcmd"
	"rutter/cmd/rutter/certcmd"
	"rutter/cmd/rutter/clustercmd"
	"rutter/cmd/rutter/cncmd"
	"rutter/cmd/rutter/cnicmd"
	"rutter/cmd/rutter/completioncmd"
	"rutter/cmd/rutter/configcmd"
	"rutter/cmd/rutter/declarecmd"
	"rutter/cmd/rutter/devcmd"
	"rutter/cmd/rutter/importcmd"
	"rutter/cmd/rutter/internal/app"
	"rutter/cmd/rutter/libvirtcmd"
	"rutter/cmd/rutter/logcmd"
	"rutter/cmd/rutter/lookupcmd"
	"rutter/cmd/rutter/manpages"
	"rutter/cmd/rutter/objects"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/revertcmd"
	"rutter/cmd/rutter/sdnotify"
	"rutter/cmd/rutter/servercmd"
	"rutter/cmd/rutter/snoopcmd"
	"rutter/cmd/rutter/supportcmd"
	"rutter/cmd/rutter/term"
	"rutter/cmd/rutter/tritoncmd"
	"rutter/cmd/rutter/varpdcmd"
	"rutter/cmd/rutter/vmcmd"
	"rutter/cmd/rutter/vminfocmd"
	"rutter/cmd/rutter/vmscmd"
	"rutter/cmd/rutter/waitcmd"
	"rutter/log"
)

// version is set by the linker (see Makefile).
var version = "development"

func main() {
	if backup.Asked(os.Args) {
		os.Exit(backup.Work(os.Args))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := os.Args
	if cnicmd.Asked(args) {
		args = []string{args[0], cnicmd.Command().Name}
	}
	os.Exit(run(ctx, args, os.Stdout, os.Stderr))
}

// versionFlag is --version of the program itself, which does what the command version does.
const versionFlag = "version"

// run runs the program and returns its exit code.
func run(ctx context.Context, args []string, rawOut, rawErr io.Writer) int {
	if len(args) == 2 && args[1] == "--"+versionFlag {
		args = []string{args[0], versionCommand().Name}
	}
	stdout, stderr := output.NewScreen(rawOut), output.NewScreen(rawErr)
	defer stderr.End()
	defer stdout.End()
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, nil))) // for libraries that log to none of ours
	err := certcmd.RefuseTokens(args[min(len(args), 1):])
	if err == nil {
		err = app.Run(ctx, newApp(stdout, stderr), args)
	}
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		output.Print(stderr, "rutter: interrupted\n")
		return term.ExitInterrupted
	}
	if text := err.Error(); text != "" { // else what was printed says it
		printError(stderr, text)
		output.Lines(stderr, "", term.Remedy(err))
	}
	code := term.ExitCode(err)
	if code == term.ExitUsage {
		sdnotify.Refused(ctx, err.Error())
	}
	return code
}

// printError prints the text of an error, in which words of others may stand: only its
// first line begins as those of the program do.
func printError(w io.Writer, text string) {
	first, rest, _ := strings.Cut(text, "\n")
	output.Printf(w, "rutter: %s\n", first)
	output.Lines(w, "  ", rest)
}

func newApp(stdout, stderr io.Writer) *cli.App {
	a := app.New(version, stdout, stderr, commands())
	settings().Configure(a.Commands)
	a.Flags = []cli.Flag{&cli.BoolFlag{Name: versionFlag, Usage: "print this program's version and the formats that it knows", DisableDefaultText: true}}
	a.Description = term.Examples(
		"Try it, three servers and two compute nodes in namespaces:  rutter demo",
		"A cluster to play with, in one terminal:                    rutter dev",
		"What happened lately:                                       rutter log tail -n 20",
		"Who has this address:                                       rutter lookup vl3 4385813 10.21.12.7",
		"Are the servers well:                                       rutter cluster status",
	) + "\n\nExit codes: 0 done; 1 failed; 2 wrong usage; 3 refused by the log or by the servers, or a question whose\n" +
		"answer is neither yes nor no; 4 no server answered in time; 130 interrupted. The help of a command says\n" +
		"what else its exit code tells: plan, apply, log revert, log diff, log bisect, log verify, trace, wait,\n" +
		"import, triton check, cluster status, support bundle, varpd."
	return a
}

// settings are the sections of the file of settings.
func settings() *configcmd.Settings {
	return &configcmd.Settings{Commands: commands, Sections: []configcmd.Section{
		{Name: "server", Flags: servercmd.Flags, Check: servercmd.Check},
		{Name: "agent", Flags: agentcmd.Flags, Check: agentcmd.Check},
		{Name: "vms", Flags: vmscmd.Flags, Check: vmscmd.Check},
		{Name: "varpd", Flags: varpdcmd.Flags, Check: varpdcmd.Check},
		configcmd.Client(),
	}}
}

// commands are all of the program, in the order of its help.
func commands() []*cli.Command {
	return slices.Concat(
		[]*cli.Command{servercmd.Command(), agentcmd.Command(certcmd.JoinCommand()), vmscmd.Command(), varpdcmd.Command(), devcmd.Command(), devcmd.DemoCommand(), benchcmd.Command()},
		objects.NetworkCommands(),
		[]*cli.Command{vmcmd.Command(), vmcmd.VMMCommand()},
		objects.OtherCommands(),
		[]*cli.Command{
			declarecmd.ExportCommand(logcmd.StateAt), declarecmd.ExplainCommand(),
			cncmd.Command(), cncmd.TaskCommand(),
			logcmd.Command(revertcmd.Command()), snoopcmd.ChangefeedCommand(), applycmd.PlanCommand(), applycmd.ApplyCommand(), importcmd.Command(), tritoncmd.Command(), certcmd.Command(), certcmd.TokenCommand(), clustercmd.GrantCommand(),
			waitcmd.Command(), lookupcmd.Command(openPast), lookupcmd.TraceCommand(openPast), snoopcmd.SVPCommand(), vminfocmd.Command(), cnicmd.Command(), libvirtcmd.Command(), clustercmd.Command(), clustercmd.SnapshotCommand(), supportcmd.Command(),
			settings().Command(), completioncmd.Command(completed), manpages.Command(version, completed), versionCommand(),
		},
	)
}

// openPast opens a log without a server, for the commands that look something up in it.
func openPast(c *cli.Context) (lookupcmd.PastLog, error) {
	at, err := logcmd.OpenAt(c)
	if err != nil {
		return nil, err
	}
	return at, nil
}

// completed are the commands as a shell completes them.
func completed() []*cli.Command {
	all := commands()
	settings().Configure(all)
	app.Prepare(all)
	return all
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print this program's version and the formats that it knows",
		Description: term.Examples("rutter version", "rutter version -o json"),
		Flags:       []cli.Flag{output.Flag()},
		Action: func(c *cli.Context) error {
			v := struct {
				Version string `json:"version"`
				Format  int    `json:"format"`
				Feature int    `json:"feature"`
			}{version, log.FormatVersion, log.FeatureVersion}
			return output.One(c, v, func(w io.Writer) {
				output.Printf(w, "rutter %s (format %d, feature version %d)\n", v.Version, v.Format, v.Feature)
			})
		},
	}
}
