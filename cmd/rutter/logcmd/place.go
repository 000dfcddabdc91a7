package logcmd

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/moment"
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
	// moment is term.Moment of the command.
	moment func(text string) (moment.Moment, error)
}

// newReading parses the filters, and refuses wrong ones.
func newReading(c *cli.Context) (*reading, error) {
	r := &reading{values: url.Values{}, moment: func(text string) (moment.Moment, error) { return term.Moment(c.Context, text) }}
	for _, name := range query.Names() {
		if value := c.String(name); value != "" {
			value, err := filterIDs(c, name, value)
			if err != nil {
				return nil, err
			}
			r.values.Set(name, value)
		}
	}
	if until := r.values.Get("until"); until != "" {
		at, err := term.MomentText(c.Context, until)
		if err != nil {
			return nil, term.Usagef("--until %w", err)
		}
		r.values.Set("until", at)
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
	if cursor, err := log.ParseCursor(text); err == nil {
		r.begin, r.cursor = "cursor", cursor
		r.values.Set("cursor", text)
		return nil
	}
	m, err := r.moment(text)
	switch {
	case err != nil:
		return term.Usagef("--from %w; or -N for the last N entries, or a cursor", err)
	case m.IsSeq:
		r.after, r.begin = max(m.Seq, 1)-1, ""
		return nil
	}
	return r.since(m.String())
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
