package log

import (
	"fmt"
	"slices"
	"strings"
)

// The limits of labels.
const (
	MaxLabels          = 16
	MaxLabelKeyBytes   = 63
	MaxLabelValueBytes = 63
)

// Labelled is an object of a kind that people declare: it has labels, from FeatureDeclared
// on. They are texts KEY=VALUE, sorted, each key once, at most MaxLabels. A key has 1 to
// MaxLabelKeyBytes of [a-z0-9._/-], a value up to MaxLabelValueBytes printable bytes of
// ASCII without a comma.
type Labelled interface {
	Object
	// LabelList returns the object's own list.
	LabelList() *[]string
}

// LabelsOf returns the labels of an object, for those who set them; nil if its kind has none.
func LabelsOf(o Object) *[]string {
	if l, ok := o.(Labelled); ok {
		return l.LabelList()
	}
	return nil
}

// CheckLabels returns what is wrong with labels, and what to do, or nil. They are sorted.
func CheckLabels(labels []string) (problem, remedy string) {
	if len(labels) > MaxLabels {
		return fmt.Sprintf("%d labels are over %d", len(labels), MaxLabels), "send fewer"
	}
	before := ""
	for i, label := range labels {
		key, value, is := strings.Cut(label, "=")
		switch {
		case !is:
			return fmt.Sprintf(`"%s" is no label`, Quote(label)), "send KEY=VALUE, as in set=web"
		case key == "" || len(key) > MaxLabelKeyBytes || strings.ContainsFunc(key, notOfKey):
			return fmt.Sprintf(`the key of label "%s" is none`, Quote(label)), fmt.Sprintf("use 1 to %d of the characters a-z, 0-9, dot, underscore, slash and hyphen", MaxLabelKeyBytes)
		case len(value) > MaxLabelValueBytes || strings.ContainsFunc(value, notPrintable):
			return fmt.Sprintf(`the value of label "%s" is none`, Quote(label)), fmt.Sprintf("use up to %d printable characters of ASCII without a comma", MaxLabelValueBytes)
		case i > 0 && key == before:
			return fmt.Sprintf(`the key of label "%s" is there twice`, Quote(label)), "send each key once"
		}
		before = key
	}
	return "", ""
}

func notOfKey(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._/-", r)
}

// notPrintable: a comma parts labels where a list is one text.
func notPrintable(r rune) bool { return r < ' ' || r > '~' || r == ',' }

// SortLabels sorts labels by key.
func SortLabels(labels []string) {
	slices.SortStableFunc(labels, func(a, b string) int {
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
}

// labelsText is the documentation of labels, which is that of each kind.
const labelsText = "Labels as KEY=VALUE, each key once, by which objects are found and sets of documents named."

// FieldLabels is the JSON name of labels.
const FieldLabels = "labels"

// labels shows the labels of an object to v: the last field of a kind.
func labels(v visitor, p *[]string) {
	if takes(v, FeatureDeclared) {
		v.strs(FieldLabels, p)
	}
}
