package vmhelper

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmrun"
	"rutter/log"
)

// protocol is the version of what this program sends. A later one only adds fields and acts:
// a field that is not known is ignored, an act that is not known is ErrUnknownAct.
const protocol = 1

// Bounds of messages, in bytes.
const (
	// MaxRequest bounds a request: a manifest of system.MaxManifest in base64, and what
	// stands beside it.
	MaxRequest = system.MaxManifest*4/3 + 64<<10
	// MaxAnswer bounds an answer, of which the longest part is the text of an error.
	MaxAnswer = 64 << 10
	// maxText bounds the text of an error. QEMU's complaint in it has at most 4 KiB.
	maxText = 16 << 10
)

// act is what a request asks for.
type act string

const (
	actStatus   act = "status"
	actPrepare  act = "prepare"
	actStart    act = "start"
	actStop     act = "stop"
	actCreate   act = "create"
	actExchange act = "exchange"
	actRemove   act = "remove"
)

// acts are all that this version knows.
var acts = []act{actStatus, actPrepare, actStart, actStop, actCreate, actExchange, actRemove}

// Folders are where the VMs are that a helper runs. An agent and its helper must have the
// same: otherwise one would start what the other does not see.
type Folders struct {
	Manifests string `json:"manifests"`
	PIDs      string `json:"vm_run"`
	NetNS     string `json:"netns"`
	EtcNetNS  string `json:"etc_netns"`
	Cgroup    string `json:"vm_cgroup"`
}

// FoldersOf are those of a runner.
func FoldersOf(r *vmrun.Runner) Folders {
	cfg := r.Folders()
	return Folders{Manifests: cfg.Manifests, PIDs: cfg.PIDs, NetNS: cfg.NetNS, EtcNetNS: cfg.EtcNetNS, Cgroup: cfg.Cgroup}
}

// request is what a client sends.
type request struct {
	Protocol int      `json:"protocol"`
	Version  string   `json:"version,omitempty"` // of the client's program
	Act      act      `json:"act"`
	VM       log.UUID `json:"vm,omitzero"`
	Force    bool     `json:"force,omitempty"`  // of stop
	Before   []byte   `json:"before,omitempty"` // of exchange: the digest of the present manifest
	Manifest []byte   `json:"manifest,omitempty"`
	// Folders are the client's; nil: it does not say. A status is answered whatever they are.
	Folders *Folders `json:"folders,omitempty"`
}

// answer is what the helper sends.
type answer struct {
	Protocol int     `json:"protocol"`
	Version  string  `json:"version,omitempty"` // of the helper's program
	Done     bool    `json:"done"`
	Error    *remote `json:"error,omitempty"`
	Status   *Report `json:"status,omitempty"`
}

// Report is what a helper says of itself.
type Report struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
	Folders Folders   `json:"folders"`
	QEMU    string    `json:"qemu"`              // its path, or why there is none
	Trouble []string  `json:"trouble,omitempty"` // why it can start no VM
	// Open are the connections now, and Working the requests that are being done.
	Open    int `json:"open"`
	Working int `json:"working"`
	// Done and Failed count requests about VMs since the helper began, Refused connections
	// and requests by the reason.
	Done    uint64            `json:"done"`
	Failed  uint64            `json:"failed"`
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// Errors of the protocol.
var (
	// ErrRequest: the helper cannot read the request.
	ErrRequest = errors.New("vmhelper: not a request")
	// ErrUnknownAct: the helper is of a version that does not know the act.
	ErrUnknownAct = errors.New("vmhelper: the helper does not know this act: update it to the agent's version, and restart rutter-vms")
	// ErrFolders: the helper has other folders than the client.
	ErrFolders = errors.New("vmhelper: the helper and the agent have different folders of VMs: give [vms] and [agent] the same settings")
	// ErrBusy: the helper does as much as it may.
	ErrBusy = errors.New("vmhelper: the helper is busy")
	// ErrPeer: the process at the other end is neither root's nor of the user of this one.
	ErrPeer = errors.New("vmhelper: only root may use this socket")
)

// decodeRequest reads a request. Errors: ErrRequest, ErrUnknownAct.
func decodeRequest(text []byte) (r request, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.Protocol < 1 {
		return r, fmt.Errorf("%w: protocol %d, want 1 or later", ErrRequest, r.Protocol)
	}
	if !slices.Contains(acts, r.Act) {
		return r, fmt.Errorf("%w: %.40q", ErrUnknownAct, string(r.Act))
	}
	wantsVM := r.Act != actStatus && r.Act != actCreate
	wantsManifest := r.Act == actCreate || r.Act == actExchange
	switch {
	case wantsVM && r.VM.IsZero():
		return r, fmt.Errorf("%w: %s without the UUID of a VM", ErrRequest, r.Act)
	case wantsManifest && len(r.Manifest) == 0:
		return r, fmt.Errorf("%w: %s without a manifest", ErrRequest, r.Act)
	case len(r.Manifest) > system.MaxManifest:
		return r, fmt.Errorf("%w: a manifest of %d bytes, it may have %d", ErrRequest, len(r.Manifest), system.MaxManifest)
	case r.Act == actExchange && len(r.Before) != len(vmrun.Digest{}):
		return r, fmt.Errorf("%w: a digest of %d bytes, want %d", ErrRequest, len(r.Before), len(vmrun.Digest{}))
	}
	return r, nil
}

// lengthSize is how many bytes the length of a message has, the highest first.
const lengthSize = 4

// encode is a message as it is sent.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), nil
}

// readMessage reads a message of at most limit bytes. Its memory grows with what has come,
// and not with what its length says. Errors: ErrRequest, io.EOF before its first byte, and
// those of the reader.
func readMessage(from io.Reader, limit int) ([]byte, error) {
	var head [lengthSize]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length == 0 || uint64(length) > uint64(limit) {
		return nil, fmt.Errorf("%w: a message of %d bytes, it may have 1 to %d", ErrRequest, length, limit)
	}
	var text bytes.Buffer
	if n, err := io.CopyN(&text, from, int64(length)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%d bytes of %d came: %w", n, length, err)
	}
	return text.Bytes(), nil
}
