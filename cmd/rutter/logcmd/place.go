package logcmd

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/query"
)

// earliest is a time before every entry. A reading since then begins at the floor.
const earliest = "1970-01-01T00:00:01Z"

// reading is the part of the log that a command reads.
type reading struct {
	values url.Values // for GET /log: the filters and where to begin
	filter *query.Filter
	after  log.Seq    // if begin is ""
	begin  string     // last, since or cursor; "" for after
	last   uint64     // of begin last
	cursor log.Cursor // of begin cursor
	follow bool
	limit  uint64 // 0: all
}

// newReading parses the filters, and refuses wrong ones.
func newReading(c *cli.Context) (*reading, error) {
	r := &reading{values: url.Values{}}
	for _, name := range query.Names() {
		if value := c.String(name); value != "" {
			r.values.Set(name, value)
		}
	}
	if until := r.values.Get("until"); until != "" {
		if at, ok := ago(until); ok {
			r.values.Set("until", at)
		}
	}
	return r, r.parse()
}

func (r *reading) parse() (err error) {
	r.filter, err = query.Parse(r.values)
	var refused *query.ParameterError
	if errors.As(err, &refused) {
		return term.Usagef("--%s: %s; %s", refused.Name, refused.Reason, refused.Remedy)
	}
	return err
}

// from sets the begin from the text of --from. "" begins with the first entry that is
// kept.
func (r *reading) from(text string) error {
	if text == "" {
		return r.since(earliest)
	}
	if back, ok := strings.CutPrefix(text, "-"); ok {
		n, err := strconv.ParseUint(back, 10, 64)
		if err != nil || n == 0 {
			return term.Usagef("--from %q: want -N for the last N entries, from 1", text)
		}
		return r.back(n)
	}
	if seq, err := log.ParseSeq(text); err == nil {
		r.after = max(seq, 1) - 1
		r.begin = ""
		return nil
	}
	if cursor, err := log.ParseCursor(text); err == nil {
		r.begin, r.cursor = "cursor", cursor
		r.values.Set("cursor", text)
		return nil
	}
	if at, ok := ago(text); ok {
		text = at
	}
	if at, err := log.ParseTime(text); err != nil || at == 0 {
		return term.Usagef("--from %q: want a seq, a time as in 2026-11-21T09:00:00Z, how long ago as in 90m or 7d, -N, or a cursor", text)
	}
	return r.since(text)
}

func (r *reading) since(text string) error {
	r.begin = "since"
	r.values.Set("since", text)
	return r.parse()
}

// back begins with the last n entries that the filters select.
func (r *reading) back(n uint64) error {
	r.begin, r.last = "last", n
	r.values.Set("last", strconv.FormatUint(n, 10))
	return nil
}

// ago returns the time that lies a duration in the past, if text is a duration.
func ago(text string) (string, bool) {
	unit := time.Duration(1)
	number := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		unit, number = 24, days+"h"
	}
	d, err := time.ParseDuration(number)
	if err != nil || d <= 0 || d > (1<<62)/24 {
		return "", false
	}
	return time.Now().Add(-unit * d).UTC().Format(time.RFC3339Nano), true
}
