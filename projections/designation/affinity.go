package designation

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// affinity is a rule of where the VM goes: beside VMs of its owner that it names, or not.
type affinity struct {
	key, value string
	near, soft bool
	// is tells whether a name matches, unless the value is a UUID.
	is func(name string) bool
}

func (a *affinity) String() string {
	op := "!="
	if a.near {
		op = "=="
	}
	if a.soft {
		op += "~"
	}
	return a.key + op + a.value
}

// ofInstance: the rule names a VM, not a tag.
func (a *affinity) ofInstance() bool { return a.key == "instance" || a.key == "container" }

// readAffinity reads a list of {key, operator, value, valueType, isSoft}, or of texts as
// in "instance!=~db*".
func (r *Request) readAffinity(raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	var list []json.RawMessage
	if decode(raw, &list) != nil || len(list) > maxAffinity {
		return invalid("vm", `VM "affinity" is no array of at most %d rules`, maxAffinity)
	}
	for _, one := range list {
		var w struct {
			Key       string `json:"key"`
			Operator  string `json:"operator"`
			Value     string `json:"value"`
			ValueType string `json:"valueType"`
			IsSoft    bool   `json:"isSoft"`
		}
		var text string
		if decode(one, &text) == nil {
			w.Key, w.Operator, w.Value, w.ValueType, w.IsSoft = cutRule(text)
		} else if decode(one, &w) != nil {
			return invalid("vm", `VM "affinity" has a rule that is no object`)
		}
		if w.Key == "" || len(w.Key) > maxText || w.Value == "" || len(w.Value) > maxText || w.Operator != "==" && w.Operator != "!=" {
			return invalid("vm", `VM "affinity" has a rule without a key, a value of at most %d bytes, or an operator of == or !=`, maxText)
		}
		a := affinity{key: w.Key, value: w.Value, near: w.Operator == "==", soft: w.IsSoft}
		if err := a.compile(w.ValueType); err != nil {
			return err
		}
		r.affinity = append(r.affinity, a)
	}
	return nil
}

// cutRule reads KEY OPERATOR [~] VALUE.
func cutRule(text string) (key, operator, value, kind string, soft bool) {
	at := strings.IndexAny(text, "=!")
	if at < 0 || len(text) < at+2 || text[at+1] != '=' {
		return text, "", "", "", false
	}
	key, operator, value = text[:at], text[at:at+2], text[at+2:]
	value, soft = strings.CutPrefix(value, "~")
	switch {
	case len(value) > 2 && value[0] == '/' && value[len(value)-1] == '/':
		kind = "re"
	case strings.Contains(value, "*"):
		kind = "glob"
	default:
		kind = "exact"
	}
	return key, operator, value, kind, soft
}

func (a *affinity) compile(kind string) error {
	switch kind {
	case "exact", "":
		a.is = func(name string) bool { return name == a.value }
		return nil
	case "glob":
		parts := strings.Split(a.value, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		re := regexp.MustCompile("^(?s:" + strings.Join(parts, ".*") + ")$")
		a.is = re.MatchString
		return nil
	case "re":
		// RE2: its time is linear in the text, whatever the expression is.
		re, err := regexp.Compile(strings.TrimSuffix(strings.TrimPrefix(a.value, "/"), "/"))
		if err != nil {
			return invalid("vm", `VM "affinity" has a regular expression that cannot be read: %.255s`, err)
		}
		a.is = re.MatchString
		return nil
	}
	return invalid("vm", `VM "affinity" has a valueType of %.40q: use exact, glob or re`, kind)
}

// locality is what affinity and hints come to: VMs of the owner.
type locality struct {
	near, far []log.UUID
	strict    bool
}

// localityOf turns a request's rules into hints. If one of them cannot be met, failure
// says which. Rules that must be met make those that should be met void, as in CNAPI.
func (r *Request) localityOf(view View, tickets *ticketed) (l locality, failure string) {
	l = locality{near: r.near, far: r.far, strict: r.strict}
	if len(r.affinity) == 0 {
		return l, ""
	}
	hard := false
	for i := range r.affinity {
		hard = hard || !r.affinity[i].soft
	}
	l = locality{strict: hard}
	named := r.named(view, tickets)
	for i := range r.affinity {
		a := &r.affinity[i]
		switch found := named[i]; {
		case a.soft && hard || a.key == "image":
		case len(found) == 0 && hard && a.near:
			return l, fmt.Sprintf("no VM of the owner matches %s", a)
		case a.near:
			l.near = append(l.near, found...)
		default:
			l.far = append(l.far, found...)
		}
	}
	return l, ""
}

// named are the VMs that each rule names: those of the owner, in the order of the log.
func (r *Request) named(view View, tickets *ticketed) [][]log.UUID {
	found := make([][]log.UUID, len(r.affinity))
	search := false
	for i := range r.affinity {
		a := &r.affinity[i]
		uuid, err := log.ParseUUID(a.value)
		switch {
		case !a.ofInstance():
			search = true
		case err == nil:
			if _, known := r.serverOf(view, tickets, uuid); known {
				found[i] = []log.UUID{uuid}
			}
		default:
			search = true
		}
	}
	if !search {
		return found
	}
	var own []*log.VM
	view(func(s *projections.State) {
		for rec := range s.List(log.KindVM) {
			if vm := rec.Object.(*log.VM); vm.OwnerUUID == r.Owner && counts(vm) {
				own = append(own, vm)
			}
		}
	})
	for _, vm := range own {
		var tags map[string]any
		read := false
		for i := range r.affinity {
			a := &r.affinity[i]
			if a.ofInstance() {
				if _, err := log.ParseUUID(a.value); err != nil && a.isInstance(vm) {
					found[i] = append(found[i], vm.UUID)
				}
				continue
			}
			if !read {
				tags, read = tagsOf(vm), true
			}
			if a.isTagged(tags) {
				found[i] = append(found[i], vm.UUID)
			}
		}
	}
	return found
}

// minDockerID is how many digits of a Docker id name a VM: its UUID begins with them.
const minDockerID = 12

// isInstance reports whether a rule names a VM, by its alias or by its Docker id.
func (a *affinity) isInstance(vm *log.VM) bool {
	if vm.Alias != "" && a.is(vm.Alias) {
		return true
	}
	if len(a.value) < minDockerID || strings.Trim(a.value, "0123456789abcdef") != "" {
		return false
	}
	id := strings.ReplaceAll(vm.UUID.String(), "-", "")
	return strings.HasPrefix(id, a.value[:min(len(a.value), len(id))])
}

func tagsOf(vm *log.VM) map[string]any {
	if !strings.Contains(vm.Properties, `"tags"`) {
		return nil
	}
	var w struct {
		Tags map[string]any `json:"tags"`
	}
	_ = decode([]byte(vm.Properties), &w) // the log took it as an object
	return w.Tags
}

// isTagged reports whether a VM has the tag of a rule, or the Docker label.
func (a *affinity) isTagged(tags map[string]any) bool {
	for _, key := range []string{a.key, "docker:label:" + a.key} {
		if v, ok := tags[key]; ok && a.is(fmt.Sprint(v)) {
			return true
		}
	}
	return false
}

// serverOf returns the server of a VM of the owner; known is false if there is no such VM.
func (r *Request) serverOf(view View, tickets *ticketed, uuid log.UUID) (cn log.UUID, known bool) {
	var vm *log.VM
	view(func(s *projections.State) { vm = s.VM(uuid) })
	if vm != nil && counts(vm) && !vm.ServerUUID.IsZero() {
		return vm.ServerUUID, vm.OwnerUUID == r.Owner
	}
	at, ok := tickets.at[uuid]
	return at.server, ok && at.owner == r.Owner
}
