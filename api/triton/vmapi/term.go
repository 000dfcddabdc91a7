package vmapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"rutter/log"
	"rutter/log/vmobject"
)

// Bounds of a predicate and of an LDAP query. The longest that Triton's programs send has
// 12 terms.
const (
	maxTerms     = 256
	maxTermDepth = 32
	maxQuery     = 16 << 10 // bytes of a query or predicate
)

// subject is a VM that filters look at. Its properties are parsed when one needs them.
type subject struct {
	vm         *log.VM
	unknown    bool // its compute node is unreachable
	properties vmobject.Object
}

func (s *subject) parsed() vmobject.Object {
	if s.properties == nil {
		s.properties = vmobject.Properties(s.vm)
	}
	return s.properties
}

// searchable are the fields that predicates and queries may name, beside tag.KEY and
// internal_metadata.KEY. VMAPI has an index of each.
var searchable = func() []string {
	names := append(vmobject.Always(), "cpu_type", "dns_domain", "docker", "hostname", "kernel_version", "package_name", "package_version", "vcpus", "zonename")
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains([]string{"customer_metadata", "internal_metadata", "datasets", "snapshots"}, name)
	})
	names = append(names, searchArray)
	slices.Sort(names)
	return names
}()

// searchArray is VMAPI's index of internal_metadata: KEY=VALUE of each short value.
const searchArray = "internal_metadata_search_array"

// maxSearched is the longest value, in bytes, that VMAPI's index of internal_metadata has.
const maxSearched = 100

// isSearchable reports whether a field may be searched.
func isSearchable(name string) bool {
	for _, prefix := range []string{"tag.", "internal_metadata."} {
		if key, is := strings.CutPrefix(name, prefix); is {
			return key != ""
		}
	}
	_, is := slices.BinarySearch(searchable, name)
	return is
}

// values are the values of a field of a VM, in text; none if the VM does not have it.
func (s *subject) values(name string) []string {
	if key, is := strings.CutPrefix(name, "tag."); is {
		return s.member("tags", key)
	}
	if key, is := strings.CutPrefix(name, "internal_metadata."); is {
		return slices.DeleteFunc(s.member("internal_metadata", key), func(v string) bool { return len(v) > maxSearched })
	}
	switch name {
	case "ram", "max_physical_memory":
		if s.vm.MaxPhysicalMemory != 0 {
			return []string{strconv.FormatUint(s.vm.MaxPhysicalMemory, 10)}
		}
	case "state":
		return []string{(&parts{vm: s.vm, unknown: s.unknown}).state()}
	case "create_timestamp":
		return []string{ms(vmobject.Created(s.vm))}
	case "last_modified":
		return []string{ms(s.vm.LastModified)}
	case "tags":
		return s.tagText()
	case searchArray:
		return s.searched()
	case "image_uuid":
		if s.vm.ImageUUID.IsZero() {
			return s.diskImage()
		}
	}
	if value, typed := log.Field(s.vm, name); typed && name != log.FieldLabels && value != nil && value != "" {
		return []string{plain(value)}
	}
	if value, is := s.parsed()[name]; is {
		return []string{plain(value)}
	}
	return nil
}

func ms(t log.Time) string { return strconv.FormatInt(int64(t)/int64(time.Millisecond), 10) }

// plain is a value in text.
func plain(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(value)
}

func (s *subject) member(of, key string) []string {
	object, _ := s.parsed()[of].(vmobject.Object)
	value, is := object[key]
	if !is || value == nil {
		return nil
	}
	return []string{plain(value)}
}

// diskImage is the image of the first disk of a VM of QEMU or bhyve.
func (s *subject) diskImage() []string {
	disks, _ := s.parsed()["disks"].([]any)
	if len(disks) == 0 {
		return nil
	}
	disk, _ := disks[0].(vmobject.Object)
	image, _ := disk["image_uuid"].(string)
	if image == "" {
		return nil
	}
	return []string{image}
}

// escapeTag is VMAPI's escape of the characters that part tags in its index.
var escapeTag = strings.NewReplacer("-", "%2D", "=", "%3D")

// tagText is the VM's tags in the form of VMAPI's index, -KEY=VALUE-KEY=VALUE-, in which
// a query names them as *-KEY=VALUE-*.
func (s *subject) tagText() []string {
	tags, _ := s.parsed()["tags"].(vmobject.Object)
	if len(tags) == 0 {
		return nil
	}
	var b strings.Builder
	for _, key := range names(tags) {
		value := plain(tags[key])
		switch tags[key].(type) {
		case bool:
			value = "%b{" + value + "}"
		case json.Number:
			value = "%n{" + value + "}"
		}
		b.WriteString("-" + escapeTag.Replace(key) + "=" + escapeTag.Replace(value))
	}
	return []string{b.String() + "-"}
}

// searched are the elements of VMAPI's index of internal_metadata.
func (s *subject) searched() (all []string) {
	object, _ := s.parsed()["internal_metadata"].(vmobject.Object)
	for _, key := range names(object) {
		if value := plain(object[key]); len(value) <= maxSearched {
			all = append(all, key+"="+value)
		}
	}
	return all
}

// term is a predicate of VMs.
type term struct {
	op    string // and, or, not; eq, lt, le, gt, ge; present
	terms []*term
	field string
	value string
	// pattern: * of the value stands for any text.
	pattern bool
}

// matches reports whether a VM is what the term says. A field that the VM does not have
// equals nothing, so that "not equal" holds.
func (t *term) matches(s *subject) bool {
	switch t.op {
	case "and":
		return !slices.ContainsFunc(t.terms, func(one *term) bool { return !one.matches(s) })
	case "or":
		return slices.ContainsFunc(t.terms, func(one *term) bool { return one.matches(s) })
	case "not":
		return !t.terms[0].matches(s)
	case "present":
		return len(s.values(t.field)) > 0
	}
	return slices.ContainsFunc(s.values(t.field), t.holds)
}

// holds compares one value of a VM with the term's.
func (t *term) holds(value string) bool {
	if t.op == "eq" && (value == t.value || t.pattern && like(value, t.value)) {
		return true
	}
	c, comparable := compareValues(value, t.value)
	if !comparable {
		return false
	}
	switch t.op {
	case "eq":
		return c == 0
	case "lt":
		return c < 0
	case "le":
		return c <= 0
	case "gt":
		return c > 0
	case "ge":
		return c >= 0
	}
	return false
}

// compareValues compares two values in text, as numbers if both are. A number is compared
// with nothing but a number, or a time in milliseconds with RFC 3339.
func compareValues(a, b string) (c int, comparable bool) {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	switch {
	case errX == nil && errY == nil:
		return cmp.Compare(x, y), true
	case errX == nil:
		at, err := log.ParseTime(b)
		if err != nil || b == "" {
			return 0, false
		}
		return cmp.Compare(x, float64(int64(at)/int64(time.Millisecond))), true
	}
	return cmp.Compare(a, b), true
}

// like reports whether a text is of a pattern in which * stands for any text.
func like(text, pattern string) bool {
	pieces := strings.Split(pattern, "*")
	first, last := pieces[0], pieces[len(pieces)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, piece := range pieces[1 : len(pieces)-1] {
		i := strings.Index(text, piece)
		if i < 0 {
			return false
		}
		text = text[i+len(piece):]
	}
	return true
}

// termReader counts the terms of one query.
type termReader struct{ terms int }

func (r *termReader) enter(depth int) error {
	if r.terms++; r.terms > maxTerms {
		return fmt.Errorf("it has over %d terms", maxTerms)
	}
	if depth > maxTermDepth {
		return fmt.Errorf("it is nested deeper than %d", maxTermDepth)
	}
	return nil
}

// relation makes a term that compares a field.
func relation(op, field, value string) (*term, error) {
	if !isSearchable(field) {
		return nil, fmt.Errorf("%.64q is no field that VMs are found by: use one of %s, tag.KEY, internal_metadata.KEY", field, strings.Join(searchable, ", "))
	}
	return &term{op: op, field: field, value: value, pattern: strings.Contains(value, "*")}, nil
}

// parsePredicate reads VMAPI's predicate in JSON: {"eq": [field, value]}, and with ne, lt,
// le, gt, ge; {"and": [predicate, predicate, …]}, and with or.
func parsePredicate(text string) (*term, error) {
	if len(text) > maxQuery {
		return nil, fmt.Errorf("%d bytes are over %d", len(text), maxQuery)
	}
	object, err := vmobject.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return new(termReader).predicate(object, 1)
}

func (r *termReader) predicate(object vmobject.Object, depth int) (*term, error) {
	if err := r.enter(depth); err != nil {
		return nil, err
	}
	if len(object) != 1 {
		return nil, fmt.Errorf("a predicate has one key, as in {\"eq\": [\"brand\", \"kvm\"]}, and not %d", len(object))
	}
	op := names(object)[0]
	list, _ := object[op].([]any)
	switch op {
	case "and", "or":
		if len(list) < 2 {
			return nil, fmt.Errorf("%s has not 2 or more predicates", op)
		}
		t := &term{op: op}
		for _, element := range list {
			inner, _ := element.(vmobject.Object)
			one, err := r.predicate(inner, depth+1)
			if err != nil {
				return nil, err
			}
			t.terms = append(t.terms, one)
		}
		return t, nil
	case "eq", "ne", "lt", "le", "gt", "ge":
		if len(list) != 2 {
			return nil, fmt.Errorf("%s has not a field and a value", op)
		}
		field, isText := list[0].(string)
		switch list[1].(type) {
		case string, bool, json.Number:
		default:
			isText = false
		}
		if !isText {
			return nil, fmt.Errorf("%s has not the name of a field and a constant", op)
		}
		if op == "ne" {
			t, err := relation("eq", field, plain(list[1]))
			return &term{op: "not", terms: []*term{t}}, err
		}
		return relation(op, field, plain(list[1]))
	}
	return nil, fmt.Errorf("%.64q is none of eq, ne, lt, le, gt, ge, and, or", op)
}
