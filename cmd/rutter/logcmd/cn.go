package logcmd

import (
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/log"
)

// tailCN prints what a CN is sent, from a seq on: entries as of any log, and what
// is sent between them. Without follow it ends at the first bookmark.
func tailCN(c *cli.Context, api *client.Client, cn log.UUID, after log.Seq) error {
	for f, err := range api.Observe(c.Context, cn, after) {
		if err != nil {
			return err
		}
		if err := printFrame(c, f); err != nil {
			return err
		}
		if f.Frame == "bookmark" && !c.Bool("follow") {
			break
		}
	}
	return nil
}

func printFrame(c *cli.Context, f client.Frame) error {
	var line string
	switch {
	case c.String("output") != "table":
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		line = string(b) + "\n"
	case f.Entry != nil:
		line = humanLine(*f.Entry)
	case f.Frame == "bookmark":
		return nil // of interest to programs only
	case f.Frame == "object":
		line = fmt.Sprintf("  %s %s of %s, as of #%d\n", f.Kind, f.ID, f.Scope, f.Seq)
	default:
		line = fmt.Sprintf("-- %s %s #%d %s\n", f.Frame, f.Scope, f.Seq, f.Text)
	}
	_, err := c.App.Writer.Write([]byte(line))
	return err
}
