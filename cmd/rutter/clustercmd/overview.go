package clustercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// overviewCommand prints what the console's front page shows.
func overviewCommand() *cli.Command {
	return &cli.Command{
		Name: "overview", Usage: "what is wrong now, and what happened in the last hour", Flags: []cli.Flag{term.ServersFlag(), output.Flag()}, Action: overviewShow,
		Description: term.Examples("rutter cluster overview", "rutter cluster overview -o json") +
			"\n\nThis is the front page of the console, as one server sees it. Numbers of the last hour are those\n" +
			"since that server started, if it has not run for an hour.",
	}
}

// overviewForm is the part of GET /overview that is printed.
type overviewForm struct {
	Server   string   `json:"server"`
	Leader   string   `json:"leader"`
	Head     log.Seq  `json:"head"`
	Written  log.Time `json:"written"`
	Problems []struct {
		Severity string `json:"severity"`
		Text     string `json:"text"`
		Do       string `json:"do"`
		Docs     string `json:"docs"`
		Nodes    []struct {
			CN       string `json:"cn_uuid"`
			Hostname string `json:"hostname"`
			Why      string `json:"why"`
		} `json:"nodes"`
	} `json:"problems"`
	Nodes struct {
		Known, Connected, Behind, Failing, Drifting, Waiting int
	} `json:"nodes"`
	Changes struct {
		Entries int `json:"entries"`
		Kinds   []struct {
			Kind   string
			Create int
			Update int
			Delete int
		} `json:"kinds"`
		Actors []struct {
			Actor   string
			Entries int
		} `json:"actors"`
	} `json:"changes"`
	History struct {
		Every    int64      `json:"every_ms"`
		KernelMS []*float64 `json:"kernel_ms"`
		Refused  []*float64 `json:"refused"`
		Codes    []struct {
			Code string `json:"code"`
			N    int    `json:"n"`
		} `json:"refused_codes"`
	} `json:"history"`
}

func overviewShow(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	api, err := term.NewClient(c)
	if err != nil {
		return err
	}
	text, err := api.Raw(c.Context, http.MethodGet, "/overview", nil)
	if err != nil {
		return err
	}
	var form overviewForm
	if err := json.Unmarshal(text, &form); err != nil {
		return fmt.Errorf("GET /overview: %w", err)
	}
	return output.One(c, text, func(out io.Writer) { writeOverview(out, &form) })
}

func writeOverview(out io.Writer, f *overviewForm) {
	if len(f.Problems) == 0 {
		output.Printf(out, "Nothing is wrong.\n")
	}
	for _, p := range f.Problems {
		output.Printf(out, "%s  %s\n", output.Text(strings.ToUpper(p.Severity)), output.Text(p.Text))
		for _, n := range p.Nodes {
			output.Printf(out, "      %s  %s  %s\n", output.Text(n.Hostname), output.Text(n.CN), output.Text(n.Why))
		}
		output.Printf(out, "      %s (docs/%s)\n", output.Text(p.Do), output.Text(p.Docs))
	}
	output.Printf(out, "\n")
	w := output.Aligned(out)
	output.Printf(w, "server\t%s, leader %s\n", output.Text(f.Server), output.Text(f.Leader))
	output.Printf(w, "head\t%d of %s\n", f.Head, f.Written)
	n := &f.Nodes
	output.Printf(w, "compute nodes\t%d of %d connected, %d behind, %d failing, %d drifting, %d waiting\n", n.Connected, n.Known, n.Behind, n.Failing, n.Drifting, n.Waiting)
	refused, kernel := 0.0, "-"
	for _, one := range f.History.Refused {
		if one != nil {
			refused += *one
		}
	}
	for _, one := range f.History.KernelMS {
		if one != nil {
			kernel = time.Duration(*one * float64(time.Millisecond)).Round(time.Millisecond / 10).String()
		}
	}
	output.Printf(w, "99 %% in the kernel within\t%s\n", kernel)
	output.Printf(w, "refused in the last hour\t%.0f\n", refused)
	for _, one := range f.History.Codes {
		output.Printf(w, "  sent to this server\t%d %s\n", one.N, output.Text(one.Code))
	}
	output.Printf(w, "changed in the last hour\t%d entries\n", f.Changes.Entries)
	for _, k := range f.Changes.Kinds {
		output.Printf(w, "  %s\t%d created, %d updated, %d deleted\n", k.Kind, k.Create, k.Update, k.Delete)
	}
	for _, a := range f.Changes.Actors {
		output.Printf(w, "  by %s\t%d\n", output.Text(a.Actor), a.Entries)
	}
	_ = w.Flush() // the terminal is gone
}
