package clustercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
)

// featureCommands show and raise the feature version.
func featureCommands() []*cli.Command {
	flags := []cli.Flag{term.ServersFlag(), output.TableFlag()}
	return []*cli.Command{
		{
			Name: "features", Usage: "the feature version, what each server's program knows, and what a higher one waits for", Flags: flags, Action: clusterFeatures,
			Description: term.Examples("rutter cluster features", "rutter cluster features -o json") +
				"\n\nUntil the version rises, every server can go back to the program of before: docs/upgrade.md.\n" +
				"Agents and clients do not count: they carry what they do not know.",
		},
		{
			Name: "finalize", Usage: "end an upgrade: all servers agree to the highest feature version that they know, for good", Flags: flags, Action: clusterFinalize,
			Description: term.Examples("rutter cluster features && rutter cluster finalize") +
				"\n\nIt is refused while a server does not answer or has an older program. After it, a program that\n" +
				"does not know the version refuses to start.",
		},
	}
}

// featuresAnswer is the answer of /cluster/features.
type featuresAnswer struct {
	Version uint32           `json:"feature_version"`
	Servers []serverFeatures `json:"servers"`
	Waiting []string         `json:"waiting"`
}

type serverFeatures struct {
	ID      string `json:"id"`
	Program string `json:"program,omitempty"`
	Knows   uint32 `json:"knows"`
	Agrees  uint32 `json:"agrees"`
	Error   string `json:"error,omitempty"`
}

func clusterFeatures(c *cli.Context) error {
	return askFeatures(c, http.MethodGet, "/cluster/features")
}

func clusterFinalize(c *cli.Context) error {
	return askFeatures(c, http.MethodPost, "/cluster/finalize")
}

func askFeatures(c *cli.Context, method, path string) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	api, err := clusterClient(c)
	if err != nil {
		return err
	}
	raw, err := api.Raw(c.Context, method, path, nil)
	if err != nil {
		return err
	}
	var f featuresAnswer
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("the answer of the server: %w", err)
	}
	if c.String("output") == "csv" {
		return output.Table(c, f, func(w io.Writer) { writeFeatures(w, f) })
	}
	return output.One(c, f, func(out io.Writer) {
		output.Printf(out, "the cluster has feature version %d\n", f.Version)
		w := output.Aligned(out)
		writeFeatures(w, f)
		_ = w.Flush() // the terminal is gone
		for _, why := range f.Waiting {
			output.Printf(out, "waiting: %s\n", output.Text(why))
		}
	})
}

// writeFeatures is a line for each server.
func writeFeatures(w io.Writer, f featuresAnswer) {
	output.Print(w, "SERVER\tPROGRAM\tKNOWS\tAGREES TO\n")
	for _, s := range f.Servers {
		if s.Error != "" {
			output.Printf(w, "%s\t-\t-\t%s\n", output.Text(s.ID), output.Text(s.Error))
			continue
		}
		program := s.Program
		if program == "" {
			program = "not reported"
		}
		output.Printf(w, "%s\t%s\t1 to %d\t%d\n", output.Text(s.ID), output.Text(program), s.Knows, s.Agrees)
	}
}
