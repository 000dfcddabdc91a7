package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The keys of a matcher of objects and lists that are none of the answer's.
const (
	keyOnly   = "<only>"   // true: the object has no other keys
	keyEach   = "<each>"   // each element of the list is like this
	keyHas    = "<has>"    // for each of these, an element of the list is like it
	keyLength = "<length>" // of the list: a number, or a matcher of one
)

// forms are the words in < > that stand for a form of text.
var forms = map[string]func(string) bool{
	"uuid":   regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`).MatchString,
	"mac":    regexp.MustCompile(`^([0-9a-f]{2}:){5}[0-9a-f]{2}$`).MatchString,
	"time":   regexp.MustCompile(`^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z$`).MatchString,
	"string": func(string) bool { return true },
	"text":   func(s string) bool { return s != "" },
	"ip":     func(s string) bool { _, err := netip.ParseAddr(s); return err == nil },
	"subnet": func(s string) bool { p, err := netip.ParsePrefix(s); return err == nil && p.Masked() == p },
}

// maxDifferences bounds those that one answer is reported with.
const maxDifferences = 16

// differences collects what an answer has that is not as expected.
type differences []string

func (d *differences) add(at, format string, args ...any) {
	switch {
	case len(*d) < maxDifferences:
		*d = append(*d, strings.TrimPrefix(at+": ", ": ")+fmt.Sprintf(format, args...))
	case len(*d) == maxDifferences:
		*d = append(*d, "and more")
	}
}

// match compares a value of an answer with a matcher. The place is for the text.
func match(want, got any, place string, d *differences) {
	switch want := want.(type) {
	case string:
		if form, ok := formOf(want); ok {
			matchForm(form, want, got, place, d)
			return
		}
		if s, ok := got.(string); !ok || s != want {
			d.add(place, "got %s, want %s", shown(got), shown(want))
		}
	case map[string]any:
		if isList(want) {
			matchListing(want, got, place, d)
			return
		}
		matchObject(want, got, place, d)
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			d.add(place, "got %s, want %s", shown(got), shown(want))
			return
		}
		for i := range want {
			match(want[i], list[i], join(place, strconv.Itoa(i)), d)
		}
	default:
		if !same(want, got) {
			d.add(place, "got %s, want %s", shown(got), shown(want))
		}
	}
}

// same compares two values of JSON. Numbers are compared by value.
func same(a, b any) bool {
	if a, ok := a.(json.Number); ok {
		b, ok := b.(json.Number)
		return ok && (a == b || equalNumbers(a, b))
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, same)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	default:
		switch b.(type) {
		case map[string]any, []any, json.Number:
			return false
		}
		return a == b
	}
}

// maxDigits bounds the texts of numbers that are compared by value: 1e999999999 is short.
const maxDigits = 40

func equalNumbers(a, b json.Number) bool {
	if len(a) > maxDigits || len(b) > maxDigits || strings.ContainsAny(string(a+b), "eE") {
		return false
	}
	x, ok := new(big.Rat).SetString(string(a))
	y, ok2 := new(big.Rat).SetString(string(b))
	return ok && ok2 && x.Cmp(y) == 0
}

func join(place, step string) string {
	if place == "" {
		return step
	}
	return place + "." + step
}

// isList says whether a matcher is one of lists, by its keys.
func isList(m map[string]any) bool {
	return m[keyEach] != nil || m[keyHas] != nil || m[keyLength] != nil
}

func matchObject(want map[string]any, got any, place string, d *differences) {
	object, ok := got.(map[string]any)
	if !ok {
		d.add(place, "got %s, want an object", shown(got))
		return
	}
	named := make(map[string]bool, len(want))
	for _, key := range sortedKeys(want) {
		if key == keyOnly {
			continue
		}
		name, optional := strings.CutSuffix(key, "?")
		named[name] = true
		value, has := object[name]
		switch {
		case want[key] == "<absent>":
			if has {
				d.add(place, "it has the key %s, which must not be there", shown(name))
			}
		case has:
			match(want[key], value, join(place, name), d)
		case !optional:
			d.add(place, "the key %s is missing", shown(name))
		}
	}
	if want[keyOnly] != true {
		return
	}
	for _, name := range sortedKeys(object) {
		if !named[name] {
			d.add(place, "it has the key %s, which is not documented", shown(name))
		}
	}
}

func matchListing(want map[string]any, got any, place string, d *differences) {
	list, ok := got.([]any)
	if !ok {
		d.add(place, "got %s, want a list", shown(got))
		return
	}
	if length := want[keyLength]; length != nil {
		match(length, json.Number(strconv.Itoa(len(list))), join(place, "length"), d)
	}
	if each := want[keyEach]; each != nil {
		for i, e := range list {
			match(each, e, join(place, strconv.Itoa(i)), d)
		}
	}
	has, _ := want[keyHas].([]any)
	for _, one := range has {
		if !slices.ContainsFunc(list, func(e any) bool {
			var not differences
			match(one, e, "", &not)
			return len(not) == 0
		}) {
			d.add(place, "none of the %d elements is like %s", len(list), shown(one))
		}
	}
}

// formOf returns the words of a text in < >.
func formOf(s string) (string, bool) {
	inner, ok := strings.CutPrefix(s, "<")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(inner, ">")
}

func matchForm(form, want string, got any, place string, d *differences) {
	if !formMatches(form, got) {
		d.add(place, "got %s, want %s", shown(got), want)
	}
}

func formMatches(form string, got any) bool {
	word, rest, _ := strings.Cut(form, " ")
	text, isText := got.(string)
	number, isNumber := got.(json.Number)
	switch word {
	case "any":
		_, none := got.(emptyBody)
		return !none
	case "object":
		_, ok := got.(map[string]any)
		return ok
	case "list":
		list, ok := got.([]any)
		element, of := strings.CutPrefix(rest, "of ")
		return ok && (!of || !slices.ContainsFunc(list, func(e any) bool { return !formMatches(element, e) }))
	case "boolean":
		_, ok := got.(bool)
		return ok
	case "number":
		return isNumber
	case "integer":
		return isNumber && !strings.ContainsAny(number.String(), ".eE")
	case "at":
		return isNumber && withinBound(rest, number)
	case "null":
		return got == nil
	case "empty":
		_, none := got.(emptyBody)
		return none
	case "literal":
		return isText && text == rest
	case "like":
		re, err := regexp.Compile(rest)
		return err == nil && isText && re.MatchString(text)
	case "one":
		choices := strings.Split(strings.TrimPrefix(rest, "of "), "|")
		return slices.ContainsFunc(choices, func(c string) bool { return c == printed(got) || isForm(c) && formMatches(c[1:len(c)-1], got) })
	default:
		f := forms[word]
		return f != nil && isText && f(text)
	}
}

func isForm(s string) bool {
	_, ok := formOf(s)
	return ok
}

// withinBound decides "least N" and "most N".
func withinBound(bound string, got json.Number) bool {
	which, text, _ := strings.Cut(bound, " ")
	limit, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false
	}
	f, err := got.Float64()
	return err == nil && (which == "least" && f >= limit || which == "most" && f <= limit)
}

// checkMatcher finds words in < > that are not known.
func checkMatcher(m any) error {
	switch m := m.(type) {
	case string:
		form, ok := formOf(use.ReplaceAllString(m, "x"))
		if !ok {
			return nil
		}
		return checkForm(form)
	case []any:
		for _, e := range m {
			if err := checkMatcher(e); err != nil {
				return err
			}
		}
	case map[string]any:
		return checkObjectMatcher(m)
	}
	return nil
}

func checkObjectMatcher(m map[string]any) error {
	for _, key := range sortedKeys(m) {
		switch key {
		case keyOnly:
			if m[key] != true || isList(m) {
				return fmt.Errorf("%s is true or not there, and only in objects", keyOnly)
			}
		case keyHas:
			if _, ok := m[key].([]any); !ok {
				return fmt.Errorf("%s is a list of matchers", keyHas)
			}
		case keyEach, keyLength:
		default:
			if strings.HasPrefix(key, "<") || isList(m) {
				return fmt.Errorf("the key %q is none of a matcher of objects (keys of the answer, %s) or of lists (%s, %s, %s)", key, keyOnly, keyEach, keyHas, keyLength)
			}
		}
		if err := checkMatcher(m[key]); err != nil {
			return err
		}
	}
	return nil
}

func checkForm(form string) error {
	word, rest, _ := strings.Cut(form, " ")
	switch {
	case word == "like":
		_, err := regexp.Compile(rest)
		return err
	case word == "list" && strings.HasPrefix(rest, "of "):
		return checkForm(strings.TrimPrefix(rest, "of "))
	case word == "one" && strings.HasPrefix(rest, "of "), word == "literal":
		return nil
	case word == "at":
		which, n, _ := strings.Cut(rest, " ")
		if _, err := strconv.ParseFloat(n, 64); err != nil || which != "least" && which != "most" {
			return fmt.Errorf("<%s>: want <at least N> or <at most N>", form)
		}
		return nil
	case rest == "" && (forms[word] != nil || slices.Contains([]string{"any", "absent", "object", "list", "boolean", "number", "integer", "null", "empty"}, word)):
		return nil
	}
	return fmt.Errorf("<%s> is no matcher: see README.md in the folder of the data", form)
}

// maxShown bounds the bytes of a value in a message.
const maxShown = 200

// shown is a value for a message, in printable ASCII: what a server answered may be
// printed on a terminal.
func shown(v any) string {
	if _, none := v.(emptyBody); none {
		return "no body"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "(no value of JSON)"
	}
	return ascii(strings.TrimSuffix(b.String(), "\n"), maxShown)
}

// ascii writes a text in printable ASCII, at most limit bytes of it.
func ascii(s string, limit int) string {
	var out strings.Builder
	for _, r := range s {
		if out.Len() >= limit {
			return out.String() + "..."
		}
		if r >= ' ' && r <= '~' {
			out.WriteRune(r)
			continue
		}
		fmt.Fprintf(&out, `\u%04x`, r)
	}
	return out.String()
}
