package vmobject

import (
	"slices"
	"strings"

	"rutter/log"
)

// internal is the field of a VM's properties that is the operators': keys and passwords of
// their programs, and how a VM was made.
const internal = "internal_metadata"

// Public returns a VM without its internal_metadata, for readers who may see the VM and
// not that; the VM itself if it has none.
func Public(vm *log.VM) *log.VM {
	text := publicText(vm.Properties)
	if text == vm.Properties {
		return vm
	}
	public := log.Clone(vm).(*log.VM)
	public.Properties = text
	return public
}

// PublicEvent returns an event of a VM as Public does, also in its old values; the event
// itself if there is nothing to leave out.
func PublicEvent(e *log.Event) *log.Event {
	vm, is := e.Object.(*log.VM)
	if !is {
		return e
	}
	shown, changed := Public(vm), e.Changed
	for i, c := range e.Changed {
		old, isText := c.Old.(string)
		if c.Path != "properties" || !isText || publicText(old) == old {
			continue
		}
		changed = slices.Clone(changed)
		changed[i].Old = log.Value(publicText(old))
	}
	if shown == vm && (len(changed) == 0 || &changed[0] == &e.Changed[0]) {
		return e
	}
	public := *e
	public.Object, public.Changed = shown, changed
	return &public
}

// publicText returns properties without internal_metadata. What is no JSON object is left
// out whole, because nothing can be said of it.
func publicText(properties string) string {
	if !strings.Contains(properties, internal) && !strings.Contains(properties, `\`) { // no other way to write the name
		return properties
	}
	object, err := Parse([]byte(properties))
	if err != nil {
		return ""
	}
	if _, has := object[internal]; !has {
		return properties
	}
	delete(object, internal)
	text, err := Text(object)
	if err != nil {
		return ""
	}
	return text
}
