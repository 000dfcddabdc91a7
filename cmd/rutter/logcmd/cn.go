package logcmd

import (
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/logprint"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
)

// tailCN prints what servers send to a CN, from the last n entries of the log on: the
// entries, and the frames between them. Without follow it ends at the first bookmark.
func tailCN(c *cli.Context, api *client.Client, cn log.UUID, n uint64) error {
	head, err := api.Head(c.Context)
	if err != nil {
		return err
	}
	after := log.Seq(0)
	if back := log.Seq(n); back < head {
		after = head - back
	}
	follow := c.Bool("follow")
	for f, err := range api.Observe(c.Context, cn, after) {
		if err == nil {
			err = printFrame(c, f)
		}
		if err != nil {
			return logprint.Ended(c.Context, err, follow)
		}
		if f.Frame == "bookmark" && !follow {
			break
		}
	}
	return nil
}

func printFrame(c *cli.Context, f client.Frame) (err error) {
	var text []byte
	format := line.Format(c.String("output"))
	switch {
	case format != line.Lines && format != line.Table:
		if text, err = json.Marshal(f); err == nil {
			text = append(text, '\n')
		}
	case f.Entry != nil:
		text, err = line.NewPrinter(line.Options{Colour: term.Coloured(c.App.Writer)}).Append(nil, *f.Entry)
	case f.Frame == "bookmark":
		return nil // of interest to programs only
	case f.Frame == "object":
		text = fmt.Appendf(nil, "  %s %s of %s, as of #%d\n", f.Kind, output.Visible(f.ID), f.Scope, f.Seq)
	default:
		text = fmt.Appendf(nil, "-- %s %s #%d %s\n", output.Visible(f.Frame), f.Scope, f.Seq, output.Visible(f.Text))
	}
	if err != nil {
		return err
	}
	return output.Escaped(c.App.Writer, text)
}
