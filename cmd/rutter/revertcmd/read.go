package revertcmd

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/named"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/query"
	"rutter/projections"
	"rutter/projections/foresee"
	"rutter/projections/naming"
	"rutter/projections/undo"
)

// MaxEntries bounds the entries that one run keeps: those that are chosen, and later ones
// about the same objects.
const MaxEntries = 1 << 20

// filterFlags are the filters of package query, except those of the place to begin.
func filterFlags() (flags []cli.Flag) {
	usage := map[string]string{
		"kind": "only entries about objects of this `KIND`", "action": "only this `ACTION`: create, update or delete",
		"object": "only entries about the object with this `ID` or name", "owner": "only objects of the owner with this `UUID`, before or after the entry",
		"vnet": "only entries on the vnet with this `NUMBER`, or of the fabric network with this name", "network": "only the network with this `UUID` or name, and NICs on it before or after the entry",
		"cn": "only what concerns the CN with this `UUID` or hostname", "ip": "only NICs that have this `ADDRESS`, before or after the entry, and its IP object",
		"actor": "only changes of this `ACTOR`", "path": "only updates that changed this `FIELD`, such as gateway",
		"until": "entries up to this `PLACE`, as for --from",
	}
	for _, name := range query.Names() {
		if text, ok := usage[name]; ok {
			flags = append(flags, &cli.StringFlag{Name: name, Usage: text})
		}
	}
	return flags
}

// pick says which entries are chosen.
type pick struct {
	matcher *query.Matcher
	change  log.UUID    // if not zero, only its entries
	seqs    log.Reverts // if not none, only these
	from    log.Seq     // not before; 0: from since on
	since   string      // a time; "": from the first entry that is kept
}

// pickOf reads the argument and the filters.
func pickOf(c *cli.Context) (*pick, error) {
	p := &pick{}
	values := url.Values{}
	given := false
	for _, name := range query.Names() {
		text := c.String(name)
		if text == "" || name == "since" {
			continue
		}
		given = true
		text, err := filterText(c, name, text)
		if err != nil {
			return nil, err
		}
		values.Set(name, text)
	}
	filter, err := query.Parse(values)
	if refused, is := errors.AsType[*query.ParameterError](err); is {
		return nil, term.Usagef("--%s: %s; %s", refused.Name, refused.Reason, refused.Remedy)
	} else if err != nil {
		return nil, err
	}
	p.matcher = filter.Matcher()
	if text := c.String("from"); text != "" {
		given = true
		m, err := term.Moment(c.Context, text)
		switch {
		case err != nil:
			return nil, term.Usagef("--from %w", err)
		case m.IsSeq:
			p.from = m.Seq
		default:
			p.since = m.String()
		}
	}
	switch c.NArg() {
	case 0:
		if !given {
			return nil, term.Usagef("which entries? give seqs, a change's id, --from and --until, or a filter such as --actor")
		}
	case 1:
		return p, p.argument(c.Args().First())
	default:
		return nil, term.Usagef("want one argument, and got %q besides: write several seqs as 1042,1050-1060", strings.Join(c.Args().Tail(), " "))
	}
	return p, nil
}

// filterText returns the value of a filter as servers read it: ids in the place of names,
// and times in their one form.
func filterText(c *cli.Context, name, text string) (string, error) {
	if name == "until" {
		at, err := term.MomentText(c.Context, text)
		if err != nil {
			return "", term.Usagef("--until %w", err)
		}
		return at, nil
	}
	return named.Filter(finder(c), c.String("kind"), name, text)
}

// finder finds objects by asking the servers, unless a text is an id.
func finder(c *cli.Context) named.Finder {
	return func(kind log.Kind, text string) (client.Named, error) {
		if id, is := naming.IsID(kind, text); is {
			return client.Named{Kind: kind, ID: id}, nil
		}
		api, err := term.NewClient(c)
		if err != nil {
			return client.Named{}, err
		}
		defer api.Close()
		return named.Object(c.Context, api, kind, text)
	}
}

func (p *pick) argument(text string) (err error) {
	if p.change, err = log.ParseUUID(text); err == nil {
		return nil
	}
	if p.seqs, err = log.ParseReverts(text); err != nil || p.seqs == nil {
		return term.Usagef("%q: want seqs as in 1042,1050-1060, or the UUID of a change", text)
	}
	p.from = max(p.from, p.seqs[0].First)
	return nil
}

// takeOf reads --take: one for all objects, and those of single ones.
func takeOf(list []string, find named.Finder) (func(log.Kind, string) undo.Take, error) {
	var all undo.Take
	of := map[string]undo.Take{}
	for _, text := range list {
		which, object := undo.Take(text), ""
		if i := strings.LastIndexByte(text, '='); i >= 0 {
			object, which = text[:i], undo.Take(text[i+1:])
		}
		if which != undo.TakeWas && which != undo.TakeNow {
			return nil, term.Usagef("--take %q: want was, now, or KIND/ID=was, KIND/ID=now", text)
		}
		if object == "" {
			all = which
			continue
		}
		kindText, id, _ := strings.Cut(object, "/")
		kind, err := log.ParseKind(kindText)
		if err != nil || id == "" {
			return nil, term.Usagef("--take %q: want KIND/ID=%s, as in network/blue=%s", text, which, which)
		}
		found, err := find(kind, id)
		if err != nil {
			return nil, fmt.Errorf("--take %s: %w", text, err)
		}
		of[kind.String()+"/"+found.ID] = which
	}
	return func(kind log.Kind, id string) undo.Take {
		if which, is := of[kind.String()+"/"+id]; is {
			return which
		}
		return all
	}, nil
}

// has reports whether an entry is chosen. past means that no later one is.
func (p *pick) has(e log.Entry) (chosen, past bool, err error) {
	if p.seqs != nil && !p.seqs.Has(e.Seq) {
		return false, e.Seq > p.seqs[len(p.seqs)-1].Last, nil
	}
	if !p.change.IsZero() {
		var v log.EventView
		if err := v.Read(e.Bytes); err != nil || v.ChangeID != p.change {
			return false, false, err
		}
	}
	verdict, err := p.matcher.Match(e.Seq, e.Bytes)
	return verdict == query.Hit, verdict == query.Past, err
}

// begin returns the seq before the first entry that may be chosen.
func (p *pick) begin(c *cli.Context, api *client.Client) (log.Seq, error) {
	if p.from > 0 {
		return p.from - 1, nil
	}
	since := p.since
	if since == "" {
		since = "1970-01-01T00:00:01Z" // the first entry that is kept
	}
	for l, err := range api.Log(c.Context, client.LogQuery{Query: url.Values{"since": {since}, "limit": {"1"}}}) {
		return max(l.Seq, 1) - 1, err
	}
	return api.Head(c.Context)
}

// object is the key of an object.
type object struct {
	kind log.Kind
	id   string
}

// read reads the log and the state, and makes the plan.
func (r *run) read(api *client.Client, p *pick, take func(log.Kind, string) undo.Take) error {
	status, err := api.Status(r.c.Context)
	if err != nil {
		return err
	}
	if status.Detail.Feature < log.FeatureDeclared {
		return term.Usagef("the cluster's feature version is %d, and entries say what they take back from version %d on: upgrade every server first", status.Detail.Feature, log.FeatureDeclared)
	}
	after, err := p.begin(r.c, api)
	if err != nil {
		return err
	}
	lines, chosen, head, err := p.lines(r.c, api, after)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		return term.Usagef("no entry is chosen: see rutter log show with the same filters; what is deleted is found by its id, not by its name")
	}
	answer, err := api.State(r.c.Context, url.Values{"at": {head.String()}})
	if err != nil {
		return err
	}
	state := projections.NewState()
	state.SetFeature(status.Detail.Feature)
	for _, o := range answer.Objects {
		if err := state.Load(projections.Record{Object: o.Object, Revision: o.Revision, Seq: o.Seq}); err != nil {
			return err
		}
	}
	if r.plan, err = undo.Of(state, head, lines, func(seq log.Seq) bool { return chosen[seq] }, take); err != nil {
		return err
	}
	r.parts = r.plan.Changes(client.NewChangeID)
	changes := make([]*log.Change, len(r.parts))
	for i := range r.parts {
		changes[i] = r.parts[i].Change
	}
	r.look = foresee.Of(state, head, changes)
	return nil
}

// lines reads the log after a seq up to its head: the chosen entries, and all later ones about
// the same objects.
func (p *pick) lines(c *cli.Context, api *client.Client, after log.Seq) (lines []log.Line, chosen map[log.Seq]bool, head log.Seq, err error) {
	head, err = api.Head(c.Context)
	if err != nil || after >= head {
		return nil, nil, head, err
	}
	objects, past := map[object]bool{}, false
	chosen = map[log.Seq]bool{}
	for e, err := range api.Entries(c.Context, after) {
		if err != nil {
			return nil, nil, head, err
		}
		if e.Seq > head {
			break
		}
		hit := false
		if !past {
			if hit, past, err = p.has(e); err != nil {
				return nil, nil, head, err
			}
		}
		named, _, err := log.EventObject(e.Bytes)
		if err != nil {
			return nil, nil, head, err
		}
		key := object{named.Kind, named.ID}
		if !hit && !objects[key] {
			continue
		}
		event, err := (log.Entry{Seq: e.Seq, Bytes: slices.Clone(e.Bytes)}).Event()
		if err != nil {
			return nil, nil, head, err
		}
		lines = append(lines, log.Line{Seq: e.Seq, Chain: e.Hash.Prefix(), Event: event})
		if len(lines) > MaxEntries {
			return nil, nil, head, term.Usagef("more than %d entries are chosen, or about the same objects: choose fewer at once", MaxEntries)
		}
		objects[key] = true
		if hit {
			chosen[e.Seq] = true
		}
	}
	return lines, chosen, head, nil
}
