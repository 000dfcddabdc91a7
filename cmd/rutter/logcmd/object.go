package logcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logcmd/internal/names"
	"rutter/cmd/rutter/logprint"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/line"
	"rutter/log/query"
)

// ofObject returns the reading of one object's events. kind may be "".
func ofObject(kind, id string) (*reading, error) {
	r := &reading{values: map[string][]string{"object": {query.ObjectID(id)}}}
	if kind != "" {
		k, err := kindNamed(kind)
		if err != nil {
			return nil, err
		}
		r.values.Set("kind", k.String())
		if mac, err := log.ParseMAC(id); k == log.KindNIC && err == nil {
			r.values.Set("object", mac.String())
		}
	}
	if err := r.parse(); err != nil {
		return nil, err
	}
	return r, r.from("")
}

func historyLines(c *cli.Context) (err error) {
	kind, id := "", c.Args().First()
	switch c.NArg() {
	case 1:
	case 2:
		kind, id = id, c.Args().Get(1)
	default:
		return term.Usagef("want one object, [KIND] ID, as in: rutter log history nic 90:b8:d0:10:02:00")
	}
	if id, err = objectID(c, kind, id); err != nil {
		return err
	}
	r, err := ofObject(kind, id)
	if err != nil {
		return err
	}
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	found := false
	counted := func(yield func(log.Line, error) bool) {
		for l, err := range linesOf(c.Context, from, r) {
			found = found || err == nil
			if !yield(l, err) {
				return
			}
		}
	}
	if err := logprint.Print(c, counted, false, line.Options{Values: true, Names: namesIn(c.Context, from).Name}); err != nil || found {
		return err
	}
	return nothingOf(kind, id)
}

func nothingOf(kind, id string) error {
	if kind == "" {
		kind = "object"
	}
	return fmt.Errorf("the log keeps nothing of %s %s: is the id right? A UUID has 36 characters, a MAC six pairs of digits", kind, id)
}

func blame(c *cli.Context) (err error) {
	if c.NArg() != 2 {
		return term.Usagef("want KIND and ID, as in: rutter log blame nic 90:b8:d0:10:02:00")
	}
	kind, id := c.Args().Get(0), c.Args().Get(1)
	if kind == "ip" {
		return blameAddress(c, id)
	}
	if c.IsSet("network") {
		return term.Usagef("--network goes with an address: rutter log blame ip ADDRESS --network UUID")
	}
	if id, err = objectID(c, kind, id); err != nil {
		return err
	}
	r, err := ofObject(kind, id)
	if err != nil {
		return err
	}
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var b line.Blame
	for l, err := range linesOf(c.Context, from, r) {
		if err == nil {
			err = b.Add(l)
		}
		if err != nil {
			return logprint.Ended(c.Context, err, false)
		}
	}
	last, ok := b.Last()
	if !ok {
		return nothingOf(kind, id)
	}
	names := namesIn(c.Context, from)
	answer := struct {
		Kind    log.Kind      `json:"kind"`
		ID      string        `json:"id"`
		Seq     log.Seq       `json:"seq"` // of its last event
		Deleted bool          `json:"deleted"`
		Fields  []line.Origin `json:"fields"`
	}{last.Event.Kind, last.Event.ID, last.Seq, last.Event.Action == log.Delete, nameOf(b.Shown(), names)}
	if c.String("output") == "csv" {
		return output.Table(c, answer, func(w io.Writer) {
			output.Print(w, "FIELD\tVALUE\tNAME\tSEQ\tTIME\tACTOR\tCHANGE\tOLD\n")
			for _, f := range answer.Fields {
				output.Printf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", f.Field, valueCell(f.Field, f.Value), f.Name, f.Seq, timeCell(f.Time), f.Actor, idCell(f.Change), valueCell(f.Field, f.Old))
			}
		})
	}
	return output.One(c, answer, func(w io.Writer) {
		_ = output.Escaped(w, line.AppendBlame(nil, &b, line.Options{Colour: term.Coloured(w), Names: names.Name})) // the terminal is gone
	})
}

// idCell is a UUID in a cell of a table; "" if it is none.
func idCell(id log.UUID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// timeCell is a time in a cell of a table; "" if it is none.
func timeCell(t log.Time) string {
	if t == 0 {
		return ""
	}
	return t.String()
}

// valueCell is the value of a field in a cell of a table: a text as it is, none as nothing,
// and the rest as JSON.
func valueCell(field string, v log.Value) string {
	if text, is := v.(string); is {
		return text
	}
	if v == nil {
		return ""
	}
	return line.Value(field, v)
}

// nameOf sets the names of what the values name.
func nameOf(fields []line.Origin, names *names.Finder) []line.Origin {
	for i := range fields {
		if uuid, is := fields[i].Value.(string); is {
			fields[i].Name = names.Name(fields[i].Field, uuid)
		}
	}
	return fields
}

// holding is one event that gave, moved or took an address, or set fields of its IP object.
type holding struct {
	Seq     log.Seq    `json:"seq"`
	Time    log.Time   `json:"time"`
	What    string     `json:"what"`           // given, moved or taken; of the IP object created, updated or deleted
	MAC     string     `json:"mac,omitempty"`  // none for the IP object
	From    *holder    `json:"from,omitempty"` // of moved
	Network log.UUID   `json:"network_uuid"`
	Owner   log.UUID   `json:"owner_uuid"`
	Belongs log.UUID   `json:"belongs_to_uuid"`
	Names   *heldNames `json:"names,omitempty"`
	Set     []setField `json:"set,omitempty"` // of the IP object
	Actor   string     `json:"actor"`
	Change  log.UUID   `json:"change_id"`
}

// holder is the network and the owner of an address.
type holder struct {
	Network log.UUID `json:"network_uuid"`
	Belongs log.UUID `json:"belongs_to_uuid"`
}

// heldNames are the names of the network and of what the address belongs to.
type heldNames struct {
	Network string `json:"network,omitempty"`
	Belongs string `json:"belongs_to,omitempty"`
}

// called is a UUID with its name, if that is known.
func called(names *names.Finder, field string, id log.UUID) string {
	if name := names.Name(field, id.String()); name != "" {
		return id.String() + " (" + line.Name(name) + ")"
	}
	return id.String()
}

// setField is a field of an IP object that an event set.
type setField struct {
	Field string    `json:"field"`
	Old   log.Value `json:"old,omitempty"`
	Value log.Value `json:"value"`
}

// text is the line of a holding.
func (h *holding) text(addr netip.Addr, names *names.Finder) string {
	belongs := func(id log.UUID) string { return called(names, "belongs_to_uuid", id) }
	network := func(id log.UUID) string { return called(names, "network_uuid", id) }
	what := fmt.Sprintf("nic %s of %s on network %s", h.MAC, belongs(h.Belongs), network(h.Network))
	if h.From != nil {
		what += fmt.Sprintf(", from %s on network %s", belongs(h.From.Belongs), network(h.From.Network))
	}
	if h.MAC == "" {
		what = fmt.Sprintf("ip object on network %s", network(h.Network))
		for _, f := range h.Set {
			if what += ", " + f.Field + " "; f.Old != nil {
				what += ":: " + line.Value(f.Field, f.Old) + " -> "
			}
			what += line.Value(f.Field, f.Value)
		}
	}
	return fmt.Sprintf("%s #%d %s %s: %s  by %s  change %s", h.Time, h.Seq, addr, h.What, what, h.Actor, h.Change)
}

// blameAddress prints the events that gave an address to a NIC, moved it or took it
// away, and those that set fields of its IP object, such as a reservation.
func blameAddress(c *cli.Context, text string) (err error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return term.Usagef("%q: want an address, as in 10.21.12.100", text)
	}
	r, err := newReading(c)
	if err != nil {
		return err
	}
	r.values.Set("ip", addr.String())
	if err := errors.Join(r.parse(), r.from("")); err != nil {
		return err
	}
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	held := []holding{}
	for l, err := range from.lines(c.Context, r) {
		if err != nil {
			return logprint.Ended(c.Context, err, false)
		}
		if h, ok := holdingOf(l, addr); ok {
			held = append(held, h)
		}
	}
	if len(held) == 0 {
		return fmt.Errorf("the log keeps no event that gave %s to a NIC or took it, or changed its IP object", addr)
	}
	names := namesIn(c.Context, from)
	for i := range held {
		h := &held[i]
		found := heldNames{names.Name("network_uuid", h.Network.String()), names.Name("belongs_to_uuid", h.Belongs.String())}
		if found != (heldNames{}) {
			h.Names = &found
		}
	}
	if c.String("output") == "csv" {
		return output.Table(c, held, func(w io.Writer) {
			output.Print(w, "SEQ\tTIME\tWHAT\tMAC\tNETWORK\tBELONGS TO\tOWNER\tACTOR\tCHANGE\n")
			for _, h := range held {
				output.Printf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Seq, h.Time, h.What, h.MAC, idCell(h.Network), idCell(h.Belongs), idCell(h.Owner), h.Actor, idCell(h.Change))
			}
		})
	}
	return output.One(c, held, func(w io.Writer) {
		for _, h := range held {
			output.Printf(w, "%s\n", h.text(addr, names))
		}
	})
}

// holdingOf returns what an entry did with an address. ok is false if it did nothing. A
// NIC that keeps its address and goes to another network, or to another VM, moves it.
func holdingOf(l log.Line, addr netip.Addr) (h holding, ok bool) {
	e := l.Event
	if ip, is := e.Object.(*log.IP); is && ip.IP == addr {
		return ofIPObject(l, ip), true
	}
	nic, isNIC := e.Object.(*log.NIC)
	if !isNIC {
		return h, false
	}
	h = holding{
		Seq: l.Seq, Time: e.Time, What: "given", MAC: e.ID, Network: nic.NetworkUUID, Owner: nic.OwnerUUID, Belongs: nic.BelongsToUUID,
		Actor: e.Actor, Change: e.ChangeID,
	}
	before, after := nic, nic
	switch e.Action {
	case log.Create:
		before = nil
	case log.Delete:
		after = nil
	case log.Update:
		reverted, err := log.Revert(nic, e.Changed)
		if before, isNIC = reverted.(*log.NIC); err != nil || !isNIC {
			before = nil
		}
	}
	had, has := before != nil && before.IP == addr, after != nil && after.IP == addr
	switch {
	case had && has:
		h.What, h.From = "moved", &holder{before.NetworkUUID, before.BelongsToUUID}
		return h, *h.From != holder{h.Network, h.Belongs}
	case had:
		h.What, h.Network, h.Owner, h.Belongs = "taken", before.NetworkUUID, before.OwnerUUID, before.BelongsToUUID
	}
	return h, had != has
}

// ofIPObject returns what an entry did with the IP object of an address.
func ofIPObject(l log.Line, ip *log.IP) holding {
	e := l.Event
	h := holding{
		Seq: l.Seq, Time: e.Time, What: e.Action.String() + "d", Network: ip.NetworkUUID, Owner: ip.OwnerUUID, Belongs: ip.BelongsToUUID,
		Actor: e.Actor, Change: e.ChangeID,
	}
	switch e.Action {
	case log.Create:
		for _, name := range log.FieldNames(e.Kind) {
			value, _ := log.Field(ip, name)
			if value != nil && value != false && name != "ip" && name != "network_uuid" {
				h.Set = append(h.Set, setField{name, nil, log.ShownValue(e.Kind, name, value)})
			}
		}
	case log.Update:
		for _, c := range e.Changed {
			value, _ := log.Field(ip, c.Path)
			h.Set = append(h.Set, setField{c.Path, log.ShownValue(e.Kind, c.Path, c.Old), log.ShownValue(e.Kind, c.Path, value)})
		}
	}
	return h
}

// namesIn returns what finds names in a log; without names in an export.
func namesIn(ctx context.Context, from reader) *names.Finder {
	switch from := from.(type) {
	case servers:
		return names.OfServers(ctx, from.Client)
	case *stored:
		if from.folder != nil {
			return names.OfFolder(ctx, from.folder)
		}
	}
	return names.None()
}
