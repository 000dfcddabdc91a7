package vmapi

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"rutter/api/internal/rest"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/log/vmrule"
	"rutter/projections"
)

// Bounds of a list.
const (
	maxFields  = 128 // that one request names
	maxUUIDs   = 1000
	sliceVMs   = 256 // that are read while the state is held
	sliceForms = 64  // whose NICs are read while the state is held
)

// listing is what a list asks for.
type listing struct {
	uuids  []log.UUID // nil: all
	server log.UUID   // zero: of all
	tests  []func(*subject) bool
	fields []string
	sort   string
	up     bool // ascending
	// marker is the last VM of the page before: its value of sort, and its UUID.
	marker        *place
	limit, offset int
}

// place is where a VM stands in the order of a list: by a value, and of equal ones by
// UUID.
type place struct {
	value string
	uuid  log.UUID
}

// problems collects what is wrong with the parameters.
type problems []log.FieldError

func (p *problems) add(field, message string) {
	*p = append(*p, log.FieldError{Field: field, Code: vmrule.ElementInvalid, Message: message})
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	slices.SortStableFunc(p, func(a, b log.FieldError) int { return cmp.Compare(a.Field, b.Field) })
	e := fail(http.StatusConflict, vmrule.Code, "Invalid Parameters")
	if e.Errors = p; p[0].Field == "role_tags" && len(p) == 1 {
		e.Message = invalidRoleTags
	}
	return e
}

// exact are parameters that compare a field with a value.
var exact = []string{"billing_id", "brand", "image_uuid", "max_physical_memory", "owner_uuid", "package_name", "package_version", "ram"}

// listingOf reads the parameters of a list. An unknown parameter is an error that names
// it.
func listingOf(query url.Values) (*listing, error) {
	l := &listing{}
	var wrong problems
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(rest.Freshness, name) {
			continue
		}
		if len(query[name]) > 1 {
			wrong.add(name, "it is given more than once")
			continue
		}
		if message := l.parameter(name, query.Get(name)); message != "" {
			wrong.add(name, message)
		}
	}
	var bad string
	l.limit, l.offset, bad = rest.Page(query, maxList, func(name string) bool { return query.Get(name) != "" })
	switch bad {
	case "limit":
		wrong.add(bad, "it must be a number from 1 to "+strconv.Itoa(maxList))
	case "offset":
		wrong.add(bad, "it must be a number from 0")
	}
	if message := l.order(query.Get("sort")); message != "" {
		wrong.add("sort", message)
	} else if message := l.begin(query.Get("marker"), l.offset > 0); message != "" {
		wrong.add("marker", message)
	}
	return l, wrong.err()
}

// parameter reads one parameter; message says what is wrong with it.
func (l *listing) parameter(name, value string) (message string) {
	if strings.HasPrefix(name, "tag.") || strings.HasPrefix(name, "internal_metadata.") {
		if !isSearchable(name) {
			return "a key is missing, as in tag.role=web"
		}
		t := &term{op: "eq", field: name, value: value}
		l.tests = append(l.tests, t.matches)
		return ""
	}
	switch name {
	case "limit", "marker", "offset", "sort":
		return "" // read together
	case "uuid", "uuids", "server_uuid", "owner_uuid", "image_uuid", "billing_id", "role_tags":
		return l.ids(name, value)
	case "fields":
		l.fields = strings.Split(value, ",")
		if value == "" || len(l.fields) > maxFields {
			return "name 1 to " + strconv.Itoa(maxFields) + " fields, parted by commas"
		}
		return ""
	case "alias":
		l.tests = append(l.tests, func(s *subject) bool { return strings.HasPrefix(s.vm.Alias, value) || like(s.vm.Alias, value) })
		return ""
	case "docker":
		want := value == "true"
		l.tests = append(l.tests, func(s *subject) bool { return (s.parsed()["docker"] == true) == want })
		return oneOf(value, "true", "false")
	case "state":
		return l.state(value)
	case "create_timestamp":
		t := &term{op: "eq", field: name, value: value}
		l.tests = append(l.tests, t.matches)
		if _, isNumber := strconv.ParseInt(value, 10, 64); isNumber == nil {
			return ""
		}
		if _, err := log.ParseTime(value); err != nil || value == "" {
			return "Invalid timestamp: " + value
		}
		return ""
	case "predicate", "query":
		return l.search(name, value)
	}
	if !slices.Contains(exact, name) {
		return "VMs are not found by this parameter: use one of " + strings.Join(parameters, ", ")
	}
	t := &term{op: "eq", field: name, value: value}
	l.tests = append(l.tests, t.matches)
	return ""
}

// parameters are the names of the parameters of a list.
var parameters = func() []string {
	names := append(slices.Clone(exact), "alias", "create_timestamp", "docker", "fields", "internal_metadata.KEY", "limit", "marker", "offset",
		"predicate", "query", "role_tags", "server_uuid", "sort", "state", "tag.KEY", "uuid", "uuids")
	slices.Sort(names)
	return names
}()

func oneOf(value string, words ...string) string {
	if slices.Contains(words, value) {
		return ""
	}
	return "it must be one of " + strings.Join(words, ", ")
}

// ids reads a parameter that is a UUID or a list of them.
func (l *listing) ids(name, value string) (message string) {
	texts := []string{value}
	if name == "uuids" || name == "role_tags" {
		texts = strings.Split(value, ",")
	}
	if len(texts) > maxUUIDs {
		return "over " + strconv.Itoa(maxUUIDs) + " UUIDs"
	}
	ids := make([]log.UUID, len(texts))
	for i, text := range texts {
		id, err := log.ParseUUID(text)
		if err != nil && name == "role_tags" {
			return text + " is not a UUID"
		}
		if err != nil {
			return "Invalid UUID"
		}
		ids[i] = id
	}
	switch name {
	case "uuid", "uuids":
		if l.uuids != nil { // both are given: what is in both
			l.uuids = slices.DeleteFunc(l.uuids, func(id log.UUID) bool { return !slices.Contains(ids, id) })
			return ""
		}
		slices.SortFunc(ids, func(a, b log.UUID) int { return slices.Compare(a[:], b[:]) })
		l.uuids = slices.Compact(ids)
	case "server_uuid":
		l.server = ids[0]
		l.tests = append(l.tests, func(s *subject) bool { return s.vm.ServerUUID == ids[0] })
	case "owner_uuid":
		l.tests = append([]func(*subject) bool{func(s *subject) bool { return s.vm.OwnerUUID == ids[0] }}, l.tests...)
	case "role_tags":
		l.tests = append(l.tests, func(s *subject) bool {
			return slices.ContainsFunc(vmobject.Tags(s.parsed()), func(tag string) bool {
				return slices.ContainsFunc(ids, func(id log.UUID) bool { return id.Is(tag) })
			})
		})
	default:
		t := &term{op: "eq", field: name, value: ids[0].String()}
		l.tests = append(l.tests, t.matches)
	}
	return ""
}

func (l *listing) state(value string) (message string) {
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		return "it must be a state, as running, or active for all but destroyed and failed ones"
	}
	l.tests = append(l.tests, func(s *subject) bool {
		if value == "active" {
			return s.vm.State != "destroyed" && s.vm.State != "failed"
		}
		return s.values("state")[0] == value
	})
	return ""
}

func (l *listing) search(name, value string) (message string) {
	parse := parsePredicate
	if name == "query" {
		parse = parseLDAP
	}
	t, err := parse(value)
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	l.tests = append(l.tests, t.matches)
	return ""
}

// sorts are the fields by which a list can be sorted.
var sorts = []string{
	"alias", "billing_id", "brand", "create_timestamp", "docker", "image_uuid", "max_physical_memory", "owner_uuid", "ram", "server_uuid", "state",
	"tags", "uuid",
}

// order reads sort: FIELD, FIELD.ASC or FIELD.DESC. As in VMAPI, the order is descending
// unless it is named, and VMs with equal values are in descending order of their UUIDs.
func (l *listing) order(text string) (message string) {
	field, direction, _ := strings.Cut(text, ".")
	if text == "" {
		field = "uuid"
	}
	direction = strings.ToUpper(direction)
	if !slices.Contains(sorts, field) || !slices.Contains([]string{"", "ASC", "DESC"}, direction) {
		return "Invalid sort param: " + text
	}
	l.sort, l.up = field, direction == "ASC"
	return ""
}

// begin reads marker: a JSON object with uuid, and with the field of sort.
func (l *listing) begin(text string, skips bool) (message string) {
	if text == "" {
		return ""
	}
	if skips {
		return "marker and offset exclude each other"
	}
	var marker map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&marker); err != nil || marker == nil {
		return "Invalid marker: it is no JSON object, as in {\"uuid\": \"UUID\"}"
	}
	uuid, _ := marker["uuid"].(string)
	id, err := log.ParseUUID(uuid)
	if err != nil {
		return "Invalid marker: it needs the uuid of the last VM of the page before"
	}
	value, has := marker[l.sort]
	if !has {
		return "Invalid marker: all sort fields must be present in it: " + l.sort
	}
	if extra := slices.DeleteFunc(names(marker), func(name string) bool { return name == "uuid" || name == l.sort }); len(extra) > 0 {
		return "Invalid marker: all its keys except uuid must be the field of sort, and not " + strings.Join(extra, ", ")
	}
	l.marker = &place{plain(value), id}
	if at, err := log.ParseTime(l.marker.value); err == nil && l.sort == "create_timestamp" && l.marker.value != "" {
		l.marker.value = ms(at)
	}
	if value == nil {
		l.marker.value = ""
	}
	return ""
}

// compare orders two places as the list is ordered.
func (l *listing) compare(a, b place) int {
	c := 0
	if l.sort != "uuid" {
		c, _ = compareValues(a.value, b.value)
		if _, errA := strconv.ParseFloat(a.value, 64); errA == nil {
			if _, errB := strconv.ParseFloat(b.value, 64); errB != nil {
				c = -1 // a number stands before a text
			}
		} else if _, errB := strconv.ParseFloat(b.value, 64); errB == nil {
			c = 1
		}
	}
	if !l.up {
		c = -c
	}
	if c != 0 {
		return c
	}
	c = slices.Compare(b.uuid[:], a.uuid[:])
	if l.sort == "uuid" && l.up {
		c = -c
	}
	return c
}

// entry is a VM that was found.
type entry struct {
	place
	vm *log.VM
}

// find returns the VMs of a list, in its order. The state is held for sliceVMs of them at
// a time, and their filters run without it.
func (s *Service) find(ctx context.Context, l *listing) []entry {
	var found []entry
	take := func(some []subject) {
		for i := range some {
			one := &some[i]
			if slices.ContainsFunc(l.tests, func(test func(*subject) bool) bool { return !test(one) }) {
				continue
			}
			e := entry{place{uuid: one.vm.UUID}, one.vm}
			if l.sort != "uuid" {
				e.value = strings.Join(one.values(l.sort), "")
			}
			found = append(found, e)
		}
	}
	if l.uuids != nil {
		for ids := range slices.Chunk(l.uuids, sliceVMs) {
			take(s.named(ids))
		}
		if len(l.uuids) <= maxGone {
			take(s.gone(ctx, l.uuids))
		}
	} else {
		s.walk(projections.Walk{Kind: log.KindVM, CN: l.server}, take)
	}
	slices.SortFunc(found, func(a, b entry) int { return l.compare(a.place, b.place) })
	return found
}

// named returns the VMs of some ids.
func (s *Service) named(ids []log.UUID) (some []subject) {
	s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
		for _, id := range ids {
			if rec, ok := state.Get(log.KindVM, id.String()); ok {
				vm := rec.Object.(*log.VM)
				some = append(some, subject{vm: vm, unknown: unreachable(state, vm)})
			}
		}
	})
	return some
}

// walk passes the VMs of a walk to take, a slice of them at a time.
func (s *Service) walk(w projections.Walk, take func([]subject)) {
	var last log.Object
	for more := true; more; {
		var some []subject
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			for rec := range state.Walk(w, last) {
				vm := rec.Object.(*log.VM)
				some = append(some, subject{vm: vm, unknown: unreachable(state, vm)})
				if len(some) == sliceVMs {
					break
				}
			}
		})
		if more = len(some) == sliceVMs; len(some) > 0 {
			last = some[len(some)-1].vm
		}
		take(some)
	}
}

// list answers GET and HEAD /vms.
func (s *Service) list(w http.ResponseWriter, r *http.Request) error {
	query, err := rest.AnyQuery(r)
	if err != nil {
		return invalid("query", "%v", err)
	}
	l, err := listingOf(query.Values())
	if err != nil {
		return err
	}
	if err := s.cfg.Store.Serving(); err != nil {
		return err
	}
	if wholeList(query.Values()) {
		if err := s.consistent(r.Context(), "which VMs exist"); err != nil {
			return err
		}
	}
	found := s.find(r.Context(), l)
	w.Header().Set("X-Joyent-Resource-Count", strconv.Itoa(len(found)))
	if l.marker != nil {
		after, _ := slices.BinarySearchFunc(found, *l.marker, func(e entry, m place) int {
			if c := l.compare(e.place, m); c != 0 {
				return c
			}
			return -1 // what equals the marker is before the page
		})
		found = found[after:]
	}
	found = found[min(l.offset, len(found)):]
	s.writeList(w, r, found[:min(l.limit, len(found))], l.fields)
	return nil
}

// wholeList reports whether a list has no filter: that is the one that listeners of the
// change feed read after they have registered.
func wholeList(query url.Values) bool {
	for name := range query {
		if !slices.Contains([]string{"limit", "offset", "marker", "sort", "fields"}, name) {
			return query.Has("consistent")
		}
	}
	return true
}

// writeList answers with VMs, of which it holds the objects of sliceForms at a time.
func (s *Service) writeList(w http.ResponseWriter, r *http.Request, page []entry, fields []string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	separator := []byte("[")
	for some := range slices.Chunk(page, sliceForms) {
		all := make([]*parts, len(some))
		s.cfg.Store.View(func(state *projections.State, _ log.Cursor) {
			for i, e := range some {
				all[i] = gather(state, e.vm)
			}
		})
		for _, p := range all {
			text, err := json.Marshal(p.shown(fields))
			if err == nil {
				_, err = w.Write(append(separator, text...))
			}
			if err != nil {
				return // the answer is cut, so that the client sees that it is not whole
			}
			separator = []byte(",")
		}
	}
	if len(page) == 0 {
		_, _ = w.Write(separator)
	}
	_, _ = w.Write([]byte("]\n")) // a client that has gone asks again
}

// page reads limit and offset; a parameter without a value is one that is not given.
func page(query url.Values) (limit, offset int, err error) {
	limit, offset, bad := rest.Page(query, maxList, func(name string) bool { return query.Get(name) != "" })
	switch bad {
	case "limit":
		return 0, 0, invalid(bad, "it must be a number from 1 to %d", maxList)
	case "offset":
		return 0, 0, invalid(bad, "it must be a number from 0")
	}
	return limit, offset, nil
}
