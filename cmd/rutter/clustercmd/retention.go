package clustercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// retentionPlan is the answer of /cluster/retention.
type retentionPlan struct {
	Age      string   `json:"age"`
	Events   uint64   `json:"events"`
	Bytes    int64    `json:"bytes"`
	Head     log.Seq  `json:"head"`
	Floor    log.Seq  `json:"floor"`
	Oldest   log.Time `json:"oldest,omitzero"`
	Used     int64    `json:"used_bytes"`
	Next     log.Seq  `json:"next_floor"`
	NextTime log.Time `json:"next_floor_time,omitzero"`
	Goes     uint64   `json:"entries_to_go"`
}

// retentionCommand shows and sets how much of the log is kept.
func retentionCommand() *cli.Command {
	flags := []cli.Flag{term.ServersFlag(), output.Flag()}
	return &cli.Command{
		Name: "retention", Usage: "how much of the log is kept", Category: "",
		Description: term.Examples("rutter cluster retention show", "rutter cluster retention set --age 30d --dry-run") +
			"\n\nEntries stay that are younger than the age or among the newest events, whichever is more, as\n" +
			"long as changes.db uses no more than the bytes, which win. The state itself is never let go:\n" +
			"only how far back the log, blame and cursors reach.",
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "what is kept, and what will go next", Flags: flags, Action: retentionShow,
				Description: term.Examples("rutter cluster retention show", "rutter cluster retention show -o json"),
			},
			{
				Name: "set", Usage: "change it, for all servers; what is not named stays as it is", Action: retentionSet,
				Flags: append(flags[:len(flags):len(flags)],
					&cli.StringFlag{Name: "age", Usage: "keep entries younger than this `TIME`, as in 30d, 168h or 90m"},
					&cli.Uint64Flag{Name: "events", Usage: "keep this `NUMBER` of newest entries, however old"},
					&cli.StringFlag{Name: "bytes", Usage: "let entries go beyond this `SIZE`, as in 16GiB, however young"},
					&cli.BoolFlag{Name: "dry-run", Usage: "change nothing, and say what would go"},
				),
				Description: term.Examples(
					"rutter cluster retention set --age 30d --dry-run",
					"rutter cluster retention set --age 30d --events 50000000 --bytes 64GiB"),
			},
		},
	}
}

func retentionShow(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	return retention(c, http.MethodGet, "/cluster/retention", nil, "would go by now, and do within a minute or so")
}

func retentionSet(c *cli.Context) error {
	if err := term.NoArguments(c); err != nil {
		return err
	}
	want := url.Values{}
	body := make(map[string]any)
	if c.IsSet("age") {
		age, err := parseAge(c.String("age"))
		if err != nil {
			return err
		}
		want.Set("age", age.String())
		body["age"] = age.String()
	}
	if c.IsSet("events") {
		if c.Uint64("events") == 0 {
			return term.Usagef("--events 0: want at least 1")
		}
		want.Set("events", strconv.FormatUint(c.Uint64("events"), 10))
		body["events"] = c.Uint64("events")
	}
	if c.IsSet("bytes") {
		n, err := output.ParseSize(c.String("bytes"))
		if err != nil {
			return err
		}
		want.Set("bytes", strconv.FormatUint(n, 10))
		body["bytes"] = n
	}
	if len(body) == 0 {
		return term.Usagef("nothing to set: name --age, --events or --bytes")
	}
	if c.Bool("dry-run") {
		return retention(c, http.MethodGet, "/cluster/retention?"+want.Encode(), nil, "would go; nothing was changed")
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return retention(c, http.MethodPut, "/cluster/retention", encoded, "go within a minute or so")
}

// retention sends a request, and prints the answer.
func retention(c *cli.Context, method, path string, body []byte, goes string) error {
	api, err := clusterClient(c)
	if err != nil {
		return err
	}
	raw, err := api.Raw(c.Context, method, path, body)
	if err != nil {
		return err
	}
	var p retentionPlan
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("the answer of the server: %w", err)
	}
	return output.One(c, p, func(out io.Writer) { writeRetention(out, &p, goes) })
}

func writeRetention(out io.Writer, p *retentionPlan, goes string) {
	w := output.Aligned(out)
	age := p.Age
	if d, err := time.ParseDuration(age); err == nil && d >= 48*time.Hour && d%(24*time.Hour) == 0 {
		age = fmt.Sprintf("%d days", d/(24*time.Hour))
	}
	output.Printf(w, "keeps\t%s or the newest %d entries, whichever is more, in at most %s\n", age, p.Events, output.Size(p.Bytes))
	output.Printf(w, "has\tseq %d to %d", p.Floor+1, p.Head)
	if p.Oldest != 0 {
		output.Printf(w, ", since %s", p.Oldest)
	}
	output.Printf(w, "; %s in use\n", output.Size(p.Used))
	if p.Goes == 0 {
		output.Print(w, "goes\tnothing yet\n")
	} else {
		output.Printf(w, "goes\t%d entries, up to seq %d of %s: they %s\n", p.Goes, p.Next, p.NextTime, goes)
	}
	_ = w.Flush() // the terminal is gone
}

// parseAge parses a duration, which may be in days.
func parseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	age, err := time.ParseDuration(text)
	if err != nil || age < 0 {
		return 0, term.Usagef("--age %q: want days, hours or minutes, as in 30d, 168h or 90m", text)
	}
	return age, nil
}
