package vmobject

import (
	"slices"
)

// bookkeeping are never left out.
var bookkeeping = []string{LeftOut, RoleTags}

// leftOutRoom is how many names of left-out parts Bound lists.
const leftOutRoom = 16

// Bound returns properties in text of at most most bytes: while they are larger, the
// largest value is left out, of an object (such as customer_metadata) its largest member
// first. Left are the names of what was left out, as customer_metadata.user-script, at
// most leftOutRoom of them, with those that LeftOut had; the properties list them too.
func Bound(properties Object, most int) (text string, left []string, err error) {
	copied := false
	for {
		if text, err = Text(properties); err != nil || len(text) <= most {
			return text, left, err
		}
		if !copied {
			properties, copied = cloned(properties), true
			left = leftOut(properties)
		}
		name := largest(properties, bookkeeping)
		if name == "" {
			return "", left, nil
		}
		label := name
		if inner, ok := properties[name].(Object); ok && len(inner) > 1 {
			member := largest(inner, nil)
			delete(inner, member)
			label += "." + member
		} else {
			delete(properties, name)
		}
		if len(label) > 64 {
			label = name
		}
		if len(left) < leftOutRoom && !slices.Contains(left, label) {
			left = append(left, label)
		}
		listed := make([]any, len(left))
		for i, one := range left {
			listed[i] = one
		}
		properties[LeftOut] = listed
	}
}

// leftOut is what was left out before.
func leftOut(properties Object) (left []string) {
	list, _ := properties[LeftOut].([]any)
	for _, element := range list {
		if name, is := element.(string); is && len(left) < leftOutRoom {
			left = append(left, name)
		}
	}
	return left
}

// cloned copies an object and the objects in it.
func cloned(properties Object) Object {
	c := make(Object, len(properties))
	for name, value := range properties {
		if inner, ok := value.(Object); ok {
			copied := make(Object, len(inner))
			for k, v := range inner {
				copied[k] = v
			}
			value = copied
		}
		c[name] = value
	}
	return c
}

// largest is the name of the largest value that is not one of except; of equal ones the
// first by name. It is "" if there is none.
func largest(object Object, except []string) (name string) {
	most := -1
	for k, v := range object {
		if slices.Contains(except, k) {
			continue
		}
		text, err := Text(Object{k: v})
		if err != nil {
			return k
		}
		if len(text) > most || len(text) == most && k < name {
			name, most = k, len(text)
		}
	}
	return name
}
