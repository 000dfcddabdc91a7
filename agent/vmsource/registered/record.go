package registered

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// Bounds of what programs register.
const (
	MaxVMs   = 4096 // registrations of one source, with those that are being removed
	MaxNICs  = 32   // of one VM, with those that are being removed
	MaxTags  = 64   // of one VM
	MaxText  = 255  // bytes of an alias, a brand, a tag's name or value, a network's name
	MaxZone  = 200  // bytes of a zonename, which is also the name of a file
	MaxKey   = 64   // bytes of the key of a NIC
	MaxBody  = 256 << 10
	maxFile  = 1 << 20 // bytes of a file; a larger one is damaged
	maxAside = 1000    // damaged files that the status names
)

// fileVersion is the version of the form of files that this program writes and reads.
const fileVersion = 1

// record is one registration on disk. Its file is written before what it says is done.
type record struct {
	Version    int               `json:"version"`
	UUID       log.UUID          `json:"uuid"`
	Alias      string            `json:"alias,omitempty"`
	OwnerUUID  log.UUID          `json:"owner_uuid"`
	Zonename   string            `json:"zonename"`
	State      string            `json:"state"`
	PID        int               `json:"pid,omitempty"`
	RAM        uint64            `json:"ram,omitempty"`
	VCPUs      uint32            `json:"vcpus,omitempty"`
	Brand      string            `json:"brand"`
	ExitStatus *int              `json:"exit_status,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	// Known: the log has had this VM.
	Known bool `json:"known,omitempty"`
	// Leaving: the registration was deleted. The file stays until the log has none of its
	// NICs.
	Leaving bool        `json:"leaving,omitempty"`
	NICs    []nicRecord `json:"nics,omitempty"`
	// RunState is the word of the VM's program for what it does in State.
	RunState string `json:"run_state,omitempty"`
	// Away: the VM's program has moved it to another node. Its NICs are not this node's.
	Away bool `json:"away,omitempty"`
}

// nicRecord is one NIC of a record.
type nicRecord struct {
	Key     string        `json:"key"`
	Network log.UUID      `json:"network_uuid,omitzero"`
	MAC     log.MAC       `json:"mac"`
	Given   bool          `json:"given,omitempty"` // the MAC was asked for
	IP      netip.Addr    `json:"ip,omitzero"`     // asked for
	Primary bool          `json:"primary,omitempty"`
	Attach  *vmdoc.Attach `json:"attach,omitempty"`
	// Change made the NIC, or is to make it while Held is not set. One change makes several
	// NICs, and the VM unless that is Known.
	Change log.UUID `json:"change,omitzero"`
	// Held: the log has had the NIC as this VM's.
	Held bool `json:"held,omitempty"`
	// Fabric: the kernels of all nodes that it concerned have had it.
	Fabric bool `json:"fabric,omitempty"`
	// Leaving: the NIC was detached; Delete is the change that deletes it in the log.
	Leaving bool     `json:"leaving,omitempty"`
	Delete  log.UUID `json:"delete,omitzero"`
	// DeleteSeq is the seq of the NIC that Delete deletes; 0: Delete was not sent.
	DeleteSeq log.Seq `json:"delete_seq,omitempty"`
	// Reason is why the log refused to make it.
	Reason string `json:"reason,omitempty"`
}

// clone returns a copy that shares nothing that is changed in place.
func (r *record) clone() *record {
	c := *r
	c.NICs = slices.Clone(r.NICs)
	return &c
}

// nic returns the NIC of that key that is not leaving, nil if there is none.
func (r *record) nic(key string) *nicRecord {
	for i := range r.NICs {
		if n := &r.NICs[i]; n.Key == key && !n.Leaving {
			return n
		}
	}
	return nil
}

// unsettled reports whether something of the record is to be told to the log.
func (r *record) unsettled() bool {
	return r.Leaving || slices.ContainsFunc(r.NICs, func(n nicRecord) bool { return n.Leaving || !n.Held && n.Reason == "" })
}

// asked reports whether the log was asked for the VM and has not answered.
func (r *record) asked() bool {
	return !r.Known && slices.ContainsFunc(r.NICs, func(n nicRecord) bool { return !n.Held && n.Reason == "" })
}

// errDamaged: a file is no record.
var errDamaged = errors.New("registered: the file is damaged")

// decodeRecord reads a file. Everything that a program could not have registered is
// damage: a file of which a part was believed could take the NICs of another VM.
func decodeRecord(text []byte) (*record, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%w: it has more than %d bytes", errDamaged, maxFile)
	}
	r := new(record)
	if err := unmarshalKnown(text, r); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if r.Version != fileVersion {
		return nil, fmt.Errorf("%w: its form is of version %d, and this program reads version %d", errDamaged, r.Version, fileVersion)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return r, nil
}

// encode is the text of the record's file.
func (r *record) encode() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "\t")
	if err == nil && len(text) >= maxFile {
		err = fmt.Errorf("registered: VM %s would need more than %d bytes", r.UUID, maxFile)
	}
	return append(text, '\n'), err
}

// check refuses what is no registration.
func (r *record) check() error {
	switch {
	case r.UUID.IsZero():
		return errors.New("uuid: want the UUID of the VM, not zero")
	case r.OwnerUUID.IsZero():
		return errors.New("owner_uuid: give the UUID of the VM's owner, without which the log does not take it")
	case r.State != StateRunning && r.State != StateStopped:
		return fmt.Errorf("state %q: want %s or %s", r.State, StateRunning, StateStopped)
	case r.PID < 0:
		return fmt.Errorf("pid %d: want the number of a process, or none", r.PID)
	case !isText(r.RunState):
		return fmt.Errorf("run_state %q: want at most %d bytes without control characters", clip(r.RunState), MaxText)
	case !isText(r.Alias), !isText(r.Brand), r.Brand == "":
		return fmt.Errorf("alias %q, brand %q: want at most %d bytes without control characters", clip(r.Alias), clip(r.Brand), MaxText)
	case !isZone(r.Zonename):
		return fmt.Errorf("zonename %q: want the name of a file in the folder of network namespaces, of at most %d bytes", clip(r.Zonename), MaxZone)
	case len(r.Tags) > MaxTags:
		return fmt.Errorf("tags: %d, want at most %d", len(r.Tags), MaxTags)
	case len(r.NICs) > MaxNICs:
		return fmt.Errorf("nics: %d, want at most %d, with those that are being removed", len(r.NICs), MaxNICs)
	}
	for name, value := range r.Tags {
		if name == "" || !isText(name) || !isText(value) {
			return fmt.Errorf("tags.%s: want at most %d bytes without control characters", clip(name), MaxText)
		}
	}
	keys, macs := make(map[string]bool), make(map[log.MAC]bool)
	for i := range r.NICs {
		n := &r.NICs[i]
		if err := n.check(); err != nil {
			return fmt.Errorf("nics.%s: %w", clip(n.Key), err)
		}
		if !n.Leaving && keys[n.Key] || macs[n.MAC] {
			return fmt.Errorf("nics.%s: two NICs of the VM have this key, or the MAC %s", n.Key, n.MAC)
		}
		keys[n.Key] = keys[n.Key] || !n.Leaving
		macs[n.MAC] = true
	}
	return nil
}

func (n *nicRecord) check() error {
	switch {
	case !isKey(n.Key):
		return fmt.Errorf("key: want 1 to %d letters, digits, '.', '_', ':' or '-'", MaxKey)
	case !n.MAC.IsUnicast():
		return fmt.Errorf("mac %s: want that of one NIC: not zero, and no group's", n.MAC)
	case n.Network.IsZero() && !n.Held:
		return errors.New("network: name the network, by its UUID or its name")
	case n.IP.IsValid() && (n.IP.Zone() != "" || n.IP.IsUnspecified() || n.IP.IsMulticast()):
		return fmt.Errorf("ips: %s is the address of no NIC", n.IP)
	case n.Attach != nil:
		return n.Attach.Check()
	}
	return nil
}

func isText(s string) bool {
	if len(s) > MaxText {
		return false
	}
	for _, c := range s {
		if c < ' ' || c == 0x7f || c == 0xfffd {
			return false
		}
	}
	return true
}

func isZone(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > MaxZone {
		return false
	}
	for _, c := range []byte(s) {
		if c == '/' || c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

func isKey(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > MaxKey {
		return false
	}
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == ':' || c == '-') {
			return false
		}
	}
	return true
}

// clip bounds what an error repeats of a request.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// unmarshalKnown reads one JSON object into v, and refuses fields that v does not have, and
// what follows.
func unmarshalKnown(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the object")
	}
	return nil
}
