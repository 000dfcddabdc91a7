package vmapi

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"rutter/api/internal/rest"
	"rutter/api/triton/internal/provision"
	"rutter/log"
	"rutter/log/vmobject"
	"rutter/log/vmrule"
	"rutter/projections/designation"
)

// machine is a new VM that a request asks for.
type machine struct {
	vm        *log.VM
	set       []string // names of the fields of vm
	networks  []provision.Network
	tags      [][]string                 // NIC tags of each network: one of each must be on the node
	payload   map[string]json.RawMessage // params of the node's task
	placement *designation.Request
	ticket    log.UUID // under which the node was chosen; zero: it was named
	sync, old bool     // old: the log has no properties yet
}

// Names of fields that are the request's, and not the VM's. The node does not get them.
var ofRequest = []string{
	"action", "affinity", "context", "creator_uuid", "idempotent", "image", "locality", "networks", "nics", "origin", "package", "role_tags", "server_uuid",
	"sync", "ticket", "vm_uuid",
	// what only the node says
	"boot_timestamp", "last_modified", "pid", "state", "transition_to", "zone_state",
}

// unrecorded are the fields that the log's record of a new VM does not have.
var unrecorded = append([]string{"customer_metadata", "internal_metadata", "resolvers", "uuid", "autoboot_now", "force"}, slices.DeleteFunc(slices.Clone(ofRequest), func(name string) bool { return name == "role_tags" })...)

// notDone are fields of what nothing here has: they are refused, because a VM without
// them is not the one that was asked for.
var notDone = map[string]string{"firewall_rules": "firewall rules", "volumes": "NFS volumes"}

// Forms of VMAPI's fields.
var (
	aliasForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)
	dnsForm   = regexp.MustCompile(`^(?i)[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9][a-z0-9-]{0,62})*$`)
)

// Limits of a new VM's fields, which are VMAPI's.
const (
	maxAlias    = 189 // bytes: base64 of it fits into zonecfg's 255
	maxHostname = 64
	maxDomain   = 255
	minSwap     = 256     // MiB
	maxFigure   = 1 << 40 // of any number, so that sums of them are exact
	hvmOverhead = 1024    // MiB that vmadm adds to the memory of a machine with virtual hardware
)

// brands are those that VMAPI takes.
var brands = []string{"bhyve", "builder", "joyent", "joyent-minimal", "kvm", "lx", "sngl"}

// fieldForms are the forms of the fields that VMAPI checks.
var fieldForms = func() map[string]func(value any) (any, string) {
	forms := map[string]func(any) (any, string){
		"alias": textForm(aliasForm, maxAlias), "hostname": textForm(dnsForm, maxHostname), "dns_domain": textForm(dnsForm, maxDomain),
		"brand": brandForm, "resolvers": listForm, "disks": disksForm, "max_swap": numberForm(minSwap), "affinity": affinityForm,
		"customer_metadata": metadataForm, "internal_metadata": metadataForm, "tags": metadataForm,
	}
	for names, form := range map[string]func(any) (any, string){
		"autoboot delegate_dataset docker do_not_inventory firewall_enabled indestructible_delegated indestructible_zoneroot maintain_resolvers":    flagForm,
		"cpu_type disk_driver fs_allowed init_name kernel_version limit_priv nic_driver package_name package_version zfs_data_compression zonename": textForm(nil, 0),
		"cpu_cap cpu_shares max_locked_memory max_lwps max_physical_memory quota tmpfs zfs_io_priority zlog_max_size":                               numberForm(0),
		"mdata_exec_timeout overprovision_cpu overprovision_memory ram vcpus":                                                                       numberForm(1),
		"billing_id creator_uuid image_uuid owner_uuid server_uuid ticket uuid":                                                                     uuidForm,
	} {
		for name := range strings.FieldsSeq(names) {
			forms[name] = form
		}
	}
	return forms
}()

// readMachine reads the body of POST /vms. All that is wrong with it is in one answer.
func readMachine(waits *syncWaits, r *http.Request, body []byte) (*machine, error) {
	object, err := vmobject.Parse(body)
	if err != nil {
		return nil, invalid("body", "%v", err)
	}
	m := &machine{}
	if m.sync, err = waits.flags(r, object); err != nil {
		return nil, err
	}
	var wrong problems
	for name, value := range object {
		if value == nil {
			delete(object, name) // as if it were not there
			continue
		}
		what, none := notDone[name]
		if list, is := value.([]any); none && (!is || len(list) > 0) {
			return nil, notHere("the creation of VMs with " + what)
		}
		form := fieldForms[name]
		if form == nil {
			continue
		}
		var message string
		if object[name], message = form(value); message != "" {
			wrong.add(name, message)
		}
	}
	m.readRest(object, &wrong)
	if len(wrong) > 0 {
		return nil, invalidVM(wrong)
	}
	if text, _ := object["uuid"].(string); text == "" {
		object["uuid"] = randomUUID().String()
	}
	return m, m.complete(object)
}

// readRest reads what is not one field's own: what is missing, and the networks.
func (m *machine) readRest(object vmobject.Object, wrong *problems) {
	need := func(name, message string) {
		*wrong = append(*wrong, log.FieldError{Field: name, Code: codeMissing, Message: message})
	}
	for _, name := range []string{"brand", "owner_uuid", "networks"} {
		if _, given := object[name]; !given {
			need(name, "")
		}
	}
	hvm := object["brand"] == "kvm" || object["brand"] == "bhyve"
	if _, given := object["ram"]; !given && (hvm || object["max_physical_memory"] == nil) {
		need("ram", "Is required: packages (billing_id) are not known here")
	}
	if _, given := object["disks"]; hvm && !given {
		need("disks", "Is required for "+plain(object["brand"]))
	}
	if tags, given := object["role_tags"]; given && !isRoleTags(tags) {
		wrong.add("role_tags", "Must be an array of UUIDs")
	}
	given, is := object["networks"]
	if !is {
		return
	}
	if text, isText := given.(string); isText { // VMAPI's oldest form
		list := []any{}
		for one := range strings.SplitSeq(text, ",") {
			list = append(list, one)
		}
		given = list
	}
	raw, err := json.Marshal(given)
	if err == nil {
		m.networks, err = provision.Networks(raw)
	}
	if err != nil {
		wrong.add("networks", err.Error())
	}
}

// complete makes the log's record and the node's task of a request that is in order.
func (m *machine) complete(object vmobject.Object) (err error) {
	ram, _ := object["ram"].(json.Number)
	switch hvm := object["brand"] == "kvm" || object["brand"] == "bhyve"; {
	case object["max_physical_memory"] != nil:
	case hvm:
		n, _ := ram.Int64() // numberForm has read it
		object["max_physical_memory"] = json.Number(strconv.FormatInt(n+hvmOverhead, 10))
	default:
		object["max_physical_memory"] = ram
	}
	if list, _ := object["resolvers"].([]any); len(list) > 0 {
		internal, _ := object["internal_metadata"].(vmobject.Object)
		if internal == nil {
			internal = vmobject.Object{}
		}
		internal["no_nic_resolvers"] = true
		object["internal_metadata"] = internal
	}
	if m.vm, m.set, err = recordOf(object); err != nil {
		return invalid("body", "%v", err)
	}
	m.vm.UUID, _ = log.ParseUUID(plain(object["uuid"])) // uuidForm has read it
	if text, given := object["server_uuid"].(string); given {
		m.vm.ServerUUID, _ = log.ParseUUID(text)
	}
	m.payload = make(map[string]json.RawMessage, len(object))
	for name, value := range object {
		if slices.Contains(ofRequest, name) {
			continue
		}
		if m.payload[name], err = json.Marshal(value); err != nil {
			return err
		}
	}
	if m.payload["networks"], err = json.Marshal(object["networks"]); err != nil { // by it the task is found again
		return err
	}
	return m.readPlacement(object)
}

// readPlacement makes the request for a compute node, in CNAPI's words.
func (m *machine) readPlacement(object vmobject.Object) error {
	wanted := vmobject.Object{"vm_uuid": m.vm.UUID.String()}
	for _, name := range []string{"owner_uuid", "brand", "ram", "quota", "cpu_cap", "vcpus", "traits", "locality", "affinity", "docker", "internal_metadata", "disks"} {
		if value, given := object[name]; given {
			wanted[name] = value
		}
	}
	if wanted["ram"] == nil {
		wanted["ram"] = object["max_physical_memory"]
	}
	vm, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	body := &designation.Body{VM: vm, Image: json.RawMessage("{}"), NICTags: json.RawMessage("[]")}
	if m.placement, err = designation.Parse(body); err == nil {
		return nil
	}
	var one *designation.Invalid
	if errors.As(err, &one) {
		return invalidVM(problems{{Field: one.Field, Code: vmrule.ElementInvalid, Message: one.Message}})
	}
	return err
}

// place completes the request for a compute node with the NIC tags of the networks.
func (m *machine) place() error {
	if len(m.tags) == 0 {
		return nil
	}
	return m.placement.Require(m.tags)
}

// invalidVM is VMAPI's refusal of a new VM.
func invalidVM(wrong problems) error {
	var p *rest.Error
	if err := wrong.err(); !errors.As(err, &p) {
		return err
	}
	p.Message = "Invalid VM parameters"
	return p
}

func inVMAPIWords(err error) error {
	var wrong *provision.Invalid
	if errors.As(err, &wrong) {
		return invalid(wrong.Field, "%s", wrong.Message)
	}
	return err
}

// randomUUID is a UUID of version 4.
func randomUUID() (id log.UUID) {
	_, _ = rand.Read(id[:]) // it never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

func textForm(form *regexp.Regexp, most int) func(any) (any, string) {
	return func(value any) (any, string) {
		text, is := value.(string)
		switch {
		case !is:
			return value, "Not a valid string"
		case most > 0 && len(text) > most:
			return value, fmt.Sprintf("String is longer than maximum of %d characters", most)
		case form != nil && !form.MatchString(text):
			return value, "String does not match regexp: /" + form.String() + "/"
		}
		return text, ""
	}
}

// numberForm takes whole numbers, also in text, and returns them as numbers.
func numberForm(least int64) func(any) (any, string) {
	return func(value any) (any, string) {
		text, is := value.(string)
		if number, isNumber := value.(json.Number); isNumber {
			text, is = number.String(), true
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if !is || err != nil || n < least || n > maxFigure {
			return value, fmt.Sprintf("Not a valid number: number must be >= %d and <= %d", least, maxFigure)
		}
		return json.Number(strconv.FormatInt(n, 10)), ""
	}
}

func flagForm(value any) (any, string) {
	switch value {
	case true, "true":
		return true, ""
	case false, "false":
		return false, ""
	}
	return value, "Invalid parameter"
}

func uuidForm(value any) (any, string) {
	text, _ := value.(string)
	if id, err := log.ParseUUID(text); err != nil || id.IsZero() {
		return value, "Invalid UUID"
	}
	return text, ""
}

func brandForm(value any) (any, string) {
	if text, is := value.(string); is && slices.Contains(brands, text) {
		return text, ""
	}
	return value, "Must be one of: " + strings.Join(brands, ", ")
}

func listForm(value any) (any, string) {
	if _, is := value.([]any); !is {
		return value, "Not an array"
	}
	return value, ""
}

// disksForm takes a list of objects, also in text.
func disksForm(value any) (any, string) {
	if text, is := value.(string); is {
		value = parsedText(text)
	}
	list, is := value.([]any)
	if !is || len(list) == 0 || slices.ContainsFunc(list, func(one any) bool { _, is := one.(vmobject.Object); return !is }) {
		return value, "Not an array of objects"
	}
	return list, ""
}

func affinityForm(value any) (any, string) {
	list, is := value.([]any)
	if !is || slices.ContainsFunc(list, func(one any) bool { _, is := one.(string); return !is }) {
		return value, "Not an array of strings"
	}
	return list, ""
}

// metadataForm takes an object of texts, numbers and truth values, also in text.
func metadataForm(value any) (any, string) {
	if text, is := value.(string); is {
		value = parsedText(text)
	}
	object, is := value.(vmobject.Object)
	if !is {
		return value, "Invalid parameter"
	}
	if !plainMembers(object) {
		return value, "Forbidden Data Type"
	}
	return object, ""
}

// parsedText is the value of JSON in text; the text itself if it is none.
func parsedText(text string) any {
	object, err := vmobject.Parse([]byte(`{"v":` + text + `}`))
	if err != nil || len(object) != 1 {
		return text
	}
	return object["v"]
}

func isRoleTags(value any) bool {
	list, is := value.([]any)
	return is && len(list) > 0 && len(list) <= maxRoleTags && !slices.ContainsFunc(list, func(one any) bool {
		text, _ := one.(string)
		_, err := log.ParseUUID(text)
		return err != nil
	})
}
