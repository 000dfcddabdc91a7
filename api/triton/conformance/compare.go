package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Limits of a comparison.
const (
	MaxObjects = 1 << 20 // objects of one list, for each server
	maxEach    = 10_000  // lists that are read for the objects of another
	maxListed  = 1000    // differences that are kept; the rest is counted
	pageLimit  = 1000    // objects of a page: the most that NAPI, CNAPI and VMAPI give
)

// Difference is where two servers answered differently. Its texts are printable ASCII.
type Difference struct {
	Where string `json:"where"`           // the id of a row, or the path of a list
	Key   string `json:"key,omitempty"`   // of an object of the list
	Field string `json:"field,omitempty"` // of the object
	A     string `json:"a"`
	B     string `json:"b"`
}

// Comparison is what two servers of one cloud answered differently.
type Comparison struct {
	Calls       int            `json:"calls"`   // rows that both were sent
	Objects     map[string]int `json:"objects"` // that both have, by list
	Differences []Difference   `json:"differences"`
	More        int            `json:"more"` // differences over the limit, which are not listed

	Except map[string][]string `json:"except"` // fields that were not compared, by list
}

func (c *Comparison) add(d Difference) {
	if len(c.Differences) >= maxListed {
		c.More++
		return
	}
	c.Differences = append(c.Differences, d)
}

// Same says whether there is no difference.
func (c *Comparison) Same() bool { return len(c.Differences) == 0 }

// Compare sends the read-only rows to both servers, with the objects that a has, and
// compares the lists of the groups object by object. It sends nothing but GET and HEAD. It
// returns an error if a server does not answer, or a list cannot be read to its end.
func Compare(ctx context.Context, a, b *Runner, groups []*Group) (*Comparison, error) {
	if !a.readOnly || !b.readOnly {
		return nil, fmt.Errorf("%w: the runner is not read-only", ErrWrites)
	}
	c := &Comparison{Objects: map[string]int{}, Except: map[string][]string{}}
	for _, g := range groups {
		if a.bases[g.Service] == "" || b.bases[g.Service] == "" {
			continue
		}
		if err := c.rows(ctx, a, b, g); err != nil {
			return c, err
		}
		if err := c.listings(ctx, a, b, g); err != nil {
			return c, err
		}
	}
	return c, nil
}

// rows compares the answers to the rows of a group: the status, the text of a refusal, and
// the object, if the row asks for one that a has.
func (c *Comparison) rows(ctx context.Context, a, b *Runner, g *Group) error {
	have := values{}
	for name, v := range g.Values {
		have[name] = v
	}
	for _, row := range g.Rows {
		if !row.ReadOnly || row.service(g) != g.Service {
			continue
		}
		before := maps.Clone(have)
		ours := a.runRow(ctx, g, row, have)
		if ours.Why != "" { // a has nothing to ask for
			continue
		}
		theirs := b.runRow(ctx, g, row, before)
		for _, r := range []*Runner{a, b} {
			if err := r.ended(ctx); err != nil {
				return err
			}
		}
		c.Calls++
		c.answers(row, ours, theirs)
	}
	return nil
}

func (c *Comparison) answers(row *Row, a, b Result) {
	where := row.ID + " (" + a.Call + ")"
	if a.answer == nil || b.answer == nil {
		if (a.answer == nil) != (b.answer == nil) {
			c.add(Difference{Where: where, A: strings.Join(a.Differences, "; "), B: strings.Join(b.Differences, "; ")})
		}
		return
	}
	if a.answer.status != b.answer.status {
		c.add(Difference{Where: where, Field: "status", A: strconv.Itoa(a.answer.status), B: strconv.Itoa(b.answer.status)})
		return
	}
	if row.Code != "" {
		c.fields(where, "", a.answer.body, b.answer.body, nil)
		return
	}
	if a.Outcome != b.Outcome {
		c.add(Difference{Where: where, A: said(a), B: said(b)})
	}
}

// said is what a server's answer has that is not documented.
func said(r Result) string {
	if len(r.Differences) == 0 {
		return "as documented"
	}
	return strings.Join(r.Differences, "; ")
}

// fields compares two objects, or any two values.
func (c *Comparison) fields(where, key string, a, b any, except []string) {
	x, ok := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if !ok || !ok2 {
		if !same(a, b) {
			c.add(Difference{Where: where, Key: key, A: shown(a), B: shown(b)})
		}
		return
	}
	names := maps.Clone(x)
	maps.Copy(names, y)
	for _, name := range sortedKeys(names) {
		if slices.Contains(except, name) {
			continue
		}
		v, inA := x[name]
		w, inB := y[name]
		if inA != inB || !same(v, w) {
			c.add(Difference{Where: where, Key: key, Field: ascii(name, maxShown), A: shownIf(inA, v), B: shownIf(inB, w)})
		}
	}
}

func shownIf(has bool, v any) string {
	if !has {
		return "(absent)"
	}
	return shown(v)
}

// objects are those of one list, by key, as JSON: a list may be long.
type objects map[string]json.RawMessage

// listings compares the lists of a group.
func (c *Comparison) listings(ctx context.Context, a, b *Runner, g *Group) error {
	keys := map[string][]string{}
	for _, l := range g.Compare {
		c.Except[l.Path] = l.Except
		if l.Each == "" {
			common, err := c.listing(ctx, a, b, g.Service, l, "")
			if err != nil {
				return err
			}
			keys[l.Path] = common
			continue
		}
		if len(keys[l.Each]) > maxEach {
			return fmt.Errorf("%s: %s has %d objects, the limit is %d", l.Path, l.Each, len(keys[l.Each]), maxEach)
		}
		for _, key := range keys[l.Each] {
			if _, err := c.listing(ctx, a, b, g.Service, l, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// listing compares one list, and returns the keys that both have, sorted.
func (c *Comparison) listing(ctx context.Context, a, b *Runner, service Service, l *Listing, each string) (common []string, err error) {
	path := strings.ReplaceAll(l.Path, "$(each)", url.PathEscape(each))
	where := ascii(path, maxShown)
	x, err := a.list(ctx, service, path, l)
	if err != nil {
		return nil, fmt.Errorf("%s of A: %w", where, err)
	}
	y, err := b.list(ctx, service, path, l)
	if err != nil {
		return nil, fmt.Errorf("%s of B: %w", where, err)
	}
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, key := range sortedKeys(all) {
		v, inA := x[key]
		w, inB := y[key]
		shownKey := ascii(key, maxShown)
		if !inA || !inB {
			c.add(Difference{Where: where, Key: shownKey, A: hasObject(inA), B: hasObject(inB)})
			continue
		}
		common = append(common, key)
		c.Objects[l.Path]++
		if bytes.Equal(v, w) {
			continue
		}
		var first, second any
		if err := decode(v, &first); err != nil {
			return nil, err
		}
		if err := decode(w, &second); err != nil {
			return nil, err
		}
		c.fields(where, shownKey, first, second, l.Except)
	}
	return common, nil
}

func hasObject(has bool) string {
	if has {
		return "has it"
	}
	return "(absent)"
}

// list reads a list to its end.
func (r *Runner) list(ctx context.Context, service Service, path string, l *Listing) (objects, error) {
	all := objects{}
	for offset := 0; ; offset += l.Page {
		page, err := r.page(ctx, r.bases[service]+path, l, offset)
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, e := range page {
			if err := all.take(e, l); err != nil {
				return nil, err
			}
		}
		switch {
		case len(page) > l.Page && l.Paged:
			return nil, fmt.Errorf("a page has %d objects, and was to have %d at most", len(page), l.Page)
		case !l.Paged || len(page) < l.Page:
			return all, nil
		case len(all) > r.objects || offset > r.objects:
			return nil, fmt.Errorf("more than %d objects", r.objects)
		case len(all) == before && len(l.Skip) == 0: // with Skip a page may add none
			return nil, fmt.Errorf("the page at offset %d has no object that was not on an earlier one", offset)
		}
	}
}

// take adds one object.
func (all objects) take(e any, l *Listing) error {
	object, ok := e.(map[string]any)
	if !ok {
		return fmt.Errorf("got the element %s, want an object", shown(e))
	}
	key := printed(object[l.Key])
	if key == "" {
		return fmt.Errorf("an object has no %s: %s", l.Key, shown(e))
	}
	for name, v := range l.Skip {
		if got, has := object[name]; has && same(v, got) {
			return nil
		}
	}
	b, err := json.Marshal(object)
	all[key] = b
	return err
}

func (r *Runner) page(ctx context.Context, address string, l *Listing, offset int) ([]any, error) {
	if l.Paged {
		separator := "?"
		if strings.Contains(address, "?") {
			separator = "&"
		}
		address += fmt.Sprintf("%slimit=%d&offset=%d", separator, l.Page, offset)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	a, err := r.receive(request)
	if err != nil {
		return nil, err
	}
	list, ok := a.body.([]any)
	if a.status != http.StatusOK || !ok {
		return nil, fmt.Errorf("got status %d and %s, want a list", a.status, shown(a.body))
	}
	return list, nil
}

// decode reads JSON with its numbers as they are written.
func decode(b []byte, to *any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(to)
}

// Detect finds which service a server is, by the list that it has.
func (r *Runner) Detect(ctx context.Context) (Service, error) {
	lists := map[Service]string{NAPI: "/networks", CNAPI: "/servers", VMAPI: "/vms"}
	var said []string
	for _, service := range Services {
		a, err := r.probe(ctx, service, lists[service])
		if err != nil {
			return "", fmt.Errorf("%w: %s", ErrSilent, ascii(err.Error(), maxShown))
		}
		if _, ok := a.body.([]any); ok && a.status == http.StatusOK {
			return service, nil
		}
		if err := a.turnsAway(); err != nil {
			return "", err
		}
		said = append(said, fmt.Sprintf("%s: status %d", lists[service], a.status))
	}
	return "", fmt.Errorf("%w %v: it has none of their lists (%s)", ErrUnknown, Services, strings.Join(said, ", "))
}

// ErrUnknown: a server has none of the lists by which Detect knows a service.
var ErrUnknown = errors.New("the server is none of")

// turnsAway says that a server lets no one in at its URL, and what to do.
func (a *answer) turnsAway() error {
	switch {
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		return fmt.Errorf("the server refuses this machine or wants credentials, and the check has none (status %d): run it where Triton's services may ask, or give its plain listener", a.status)
	case a.status >= 300 && a.status < 400:
		return fmt.Errorf("the server sends its callers to %s (status %d): give that URL, if it is the service", ascii(a.header.Get("Location"), maxShown), a.status)
	}
	return nil
}

func (r *Runner) probe(ctx context.Context, service Service, path string) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.bases[service]+path+"?limit=1", nil)
	if err != nil {
		return nil, err
	}
	return r.receive(request)
}
