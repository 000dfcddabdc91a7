package planprint

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"rutter/cmd/rutter/output"
	"rutter/log"
	"rutter/projections/foresee"
)

// Counts is how many objects a plan makes, changes and deletes. A replaced object is
// counted as such only.
type Counts struct {
	Create  int `json:"create"`
	Update  int `json:"update"`
	Delete  int `json:"delete"`
	Replace int `json:"replace"`
	Refused int `json:"refused"` // changes
}

// Count counts the objects and the refused changes of an outcome.
func Count(o *foresee.Outcome) Counts {
	n := Counts{Refused: o.Refusals()}
	for i := range o.Objects {
		switch o.Objects[i].Action {
		case foresee.Create:
			n.Create++
		case foresee.Update:
			n.Update++
		case foresee.Delete:
			n.Delete++
		case foresee.Replace:
			n.Replace++
		}
	}
	return n
}

// String returns the counts as a last line has them: "2 to create, 1 to update".
func (n Counts) String() string {
	var parts []string
	for _, part := range []struct {
		n    int
		text string
	}{{n.Create, "to create"}, {n.Update, "to update"}, {n.Delete, "to delete"}, {n.Replace, "to replace"}, {n.Refused, "refused changes"}} {
		if part.n > 0 {
			if part.n == 1 {
				part.text = strings.TrimSuffix(part.text, "s")
			}
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.text))
		}
	}
	if parts == nil {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}

// Outcome prints an outcome in a format: table, json or ndjson. The first is for people and
// ends without a line of counts; the last has a line of JSON for each refused operation,
// object, link and pair, which say in "sort" what they are, and one of counts.
func Outcome(w io.Writer, format string, o *foresee.Outcome) error {
	switch format {
	case "json":
		return output.Indented(w, o)
	case "ndjson":
		return lines(w, o)
	}
	p := printer{bufio.NewWriter(w)}
	p.refused(o)
	p.objects(o)
	p.nodes(o)
	p.pairs(o)
	return p.Flush()
}

// printer prints for people. After the first error, which Flush returns, it prints nothing.
type printer struct{ *bufio.Writer }

func (p printer) refused(o *foresee.Outcome) {
	for n := range o.Changes {
		c := &o.Changes[n]
		if c.Result.Refusal == nil {
			continue
		}
		output.Printf(p, "change %d would be refused:\n", n+1)
		for _, r := range c.Refused {
			if r.Op < 0 {
				output.Printf(p, "! %s\n", r.Refusal)
				continue
			}
			output.Printf(p, "! %s %s %s: %s\n", r.Action, r.Kind, Called(r.ID, r.Name), r.Refusal)
		}
		if len(c.Refused) == foresee.MaxRefused {
			output.Printf(p, "  and perhaps more: the first %d are named\n", len(c.Refused))
		}
	}
}

// Called is an object's id with its name, for people.
func Called(id, name string) string {
	if name == "" {
		return id
	}
	return fmt.Sprintf("%s (%s)", id, name)
}

// Mark is the sign of an action in front of a line.
func Mark(action string) string {
	switch action {
	case foresee.Create:
		return "+"
	case foresee.Delete:
		return "-"
	case foresee.Replace:
		return "-/+"
	}
	return "~"
}

func (p printer) objects(o *foresee.Outcome) {
	for i := range o.Objects {
		p.object(&o.Objects[i])
	}
}

func (p printer) object(x *foresee.Object) {
	output.Printf(p, "%s %s %s\n", Mark(x.Action), x.Kind, Called(x.ID, x.Name))
	if x.Action == foresee.Delete {
		return
	}
	times := log.TimeFields()
	for i := range x.Fields {
		f := &x.Fields[i]
		if _, isTime := slices.BinarySearch(times, f.Path); isTime || f.New == x.ID {
			continue // the servers write times; the id stands above
		}
		switch {
		case f.Drawn:
			output.Printf(p, "      %s: chosen when applied\n", f.Path)
		case x.Action == foresee.Create:
			output.Printf(p, "      %s: %s\n", f.Path, valueText(f.New, f.Names))
		default:
			output.Printf(p, "      %s: %s -> %s\n", f.Path, valueText(f.Old, f.Names), valueText(f.New, f.Names))
		}
	}
}

// valueText returns a value, texts in quotes, with the names of what it names.
func valueText(v log.Value, names map[string]string) string {
	switch v := v.(type) {
	case string:
		if name := names[v]; name != "" {
			return fmt.Sprintf("%s (%s)", jsonText(v), name)
		}
	case []string:
		all := make([]string, len(v))
		for i, text := range v {
			all[i] = valueText(text, names)
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	return jsonText(v)
}

func jsonText(v any) string {
	if text, is := v.(string); is {
		return strconv.Quote(text)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func (p printer) nodes(o *foresee.Outcome) {
	for i := range o.Nodes {
		n := &o.Nodes[i]
		output.Printf(p, "CN %s:\n", Called(n.CN.String(), n.Hostname))
		for j := range n.Links {
			l := &n.Links[j]
			text := l.Before
			switch l.Action {
			case log.Create:
				text = l.After
			case log.Update:
				text += " -> " + l.After
			}
			output.Printf(p, "    %s %s %s", Mark(l.Action.String()), l.What, Called(l.Key, l.Name))
			if text != "" {
				output.Printf(p, ": %s", text)
			}
			output.Printf(p, "\n")
		}
	}
	if o.NodesLooked < o.NodesConcerned {
		output.Printf(p, "kernels: looked at %d of %d nodes\n", o.NodesLooked, o.NodesConcerned)
	}
}

func (p printer) pairs(o *foresee.Outcome) {
	if len(o.Pairs) > 0 {
		output.Printf(p, "reachability:\n")
	}
	for i := range o.Pairs {
		pair := &o.Pairs[i]
		from, to := orID(pair.FromName, pair.From), orID(pair.ToName, pair.To)
		switch pair.Change {
		case foresee.Lost:
			output.Printf(p, "    - %s and %s lose each other: %s\n", from, to, pair.Why)
		case foresee.Gained:
			output.Printf(p, "    + %s and %s can reach each other\n", from, to)
		default:
			output.Printf(p, "    ? %s and %s may lose packets: %s\n", from, to, pair.Why)
		}
	}
	if o.PairsLooked < o.PairsConcerned {
		output.Printf(p, "reachability: looked at %d of at most %d pairs of VMs\n", o.PairsLooked, o.PairsConcerned)
	}
}

func orID(name string, id log.UUID) string {
	if name == "" {
		return id.String()
	}
	return name
}

// lines prints an outcome as lines of JSON.
func lines(w io.Writer, o *foresee.Outcome) error {
	var all error
	put := func(v any) {
		if all == nil {
			all = output.JSON(w, v)
		}
	}
	for n := range o.Changes {
		for i := range o.Changes[n].Refused {
			put(struct {
				Sort   string `json:"sort"`
				Change int    `json:"change"` // from 1
				*foresee.Refused
			}{"refused", n + 1, &o.Changes[n].Refused[i]})
		}
	}
	for i := range o.Objects {
		put(struct {
			Sort string `json:"sort"`
			*foresee.Object
		}{"object", &o.Objects[i]})
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		for j := range n.Links {
			put(struct {
				Sort     string   `json:"sort"`
				CN       log.UUID `json:"cn_uuid"`
				Hostname string   `json:"hostname,omitempty"`
				*foresee.Link
			}{"link", n.CN, n.Hostname, &n.Links[j]})
		}
	}
	for i := range o.Pairs {
		put(struct {
			Sort string `json:"sort"`
			*foresee.Pair
		}{"pair", &o.Pairs[i]})
	}
	put(struct {
		Sort string `json:"sort"`
		Counts
		NodesLooked    int `json:"nodes_looked_at"`
		NodesConcerned int `json:"nodes_concerned"`
		PairsLooked    int `json:"pairs_looked_at"`
		PairsConcerned int `json:"pairs_concerned"`
	}{"counts", Count(o), o.NodesLooked, o.NodesConcerned, o.PairsLooked, o.PairsConcerned})
	return all
}
