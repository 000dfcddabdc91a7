package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
	"rutter/log/vmrule"
)

// ErrPrograms: a task chooses what runs on this node, and the node does not allow it.
var ErrPrograms = errors.New("this compute node runs nothing that a task chooses")

// mayChoose refuses a manifest that differs from the one before in what runs on this
// node, unless tasks may choose that. Error: ErrPrograms.
func (m *Machines) mayChoose(id log.UUID, before, after vmdoc.Value) error {
	if m.Programs {
		return nil
	}
	was, is := programsOf(id, before), programsOf(id, after)
	var changed []string
	for name, value := range is {
		if !bytes.Equal(was[name], value) {
			name, _, _ = strings.Cut(name, " ")
			changed = append(changed, "params."+name)
		}
	}
	for name := range was {
		if strings.HasPrefix(name, nicsAttach) {
			continue // a NIC that goes chooses nothing
		}
		if _, stays := is[name]; !stays {
			changed = append(changed, "params."+name)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	changed = slices.Compact(changed)
	return fmt.Errorf("%s: %w: leave it out, write the manifest on the node itself (rutter vm create, rutter vm update), or let its agent take it (rutter agent --allow-execute)", strings.Join(changed, ", "), ErrPrograms)
}

// nicsAttach is the name in programsOf of how one NIC is attached, before its MAC. Tasks may
// change what else a NIC has, and other NICs.
const nicsAttach = "nics "

// programsOf are the fields of a manifest that choose what runs, and how each NIC is attached.
func programsOf(id log.UUID, manifest vmdoc.Value) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if manifest.IsObject() {
		_ = json.Unmarshal(manifest.AppendJSON(nil), &fields) // it is an object
	}
	chosen := make(map[string]json.RawMessage)
	for _, name := range vmrule.Programs(id.String(), fields) {
		if name != "nics" {
			chosen[name] = fields[name]
			continue
		}
		list, _ := manifest.Get(name)
		for i, nic := range list.Items() {
			if attach, has := nic.Get(vmdoc.AttachField); has {
				mac := strings.ToLower(textOf(nic, "mac"))
				if mac == "" {
					mac = fmt.Sprint(i) // it gets one when it is made
				}
				chosen[nicsAttach+mac] = attach.AppendJSON(nil)
			}
		}
	}
	return chosen
}
