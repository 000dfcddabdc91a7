package system

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"rutter/agent/vminfo/vmdoc"
	"rutter/log"
)

// MaxManifest bounds the bytes of a manifest; real ones have a few thousand, and
// metadata can make them longer.
const MaxManifest = 1 << 20

// Manifest is the wanted configuration of a VM: vmadm's JSON.
type Manifest struct {
	Value vmdoc.Value
	UUID  log.UUID
	Zone  string
	Nics  bool // it has some
}

// ParseManifest reads a manifest. It requires the fields that are needed to watch the
// VM, and passes the rest on unchanged.
func ParseManifest(text []byte) (Manifest, error) {
	if len(text) == 0 {
		return Manifest{}, errors.New("vminfo: an empty manifest: write it whole beside the folder, then rename it into it")
	}
	v, err := vmdoc.ParseValue(text)
	if err != nil {
		return Manifest{}, err
	}
	vm, err := vmdoc.Identify(v)
	if err != nil {
		return Manifest{}, err
	}
	if zone, ok := v.Get("zonename"); ok {
		if _, isText := zone.String(); !isText {
			return Manifest{}, errors.New("vminfo: zonename is no string")
		}
	}
	nics, ok := v.Get("nics")
	if ok && !nics.IsArray() {
		return Manifest{}, errors.New("vminfo: nics is no array")
	}
	for i, nic := range nics.Items() {
		if !nic.IsObject() {
			return Manifest{}, fmt.Errorf("vminfo: nics.%d is no object", i)
		}
		if _, err := log.ParseMAC(nic.Text("mac")); err != nil {
			return Manifest{}, fmt.Errorf("vminfo: nics.%d.mac: %w", i, err)
		}
	}
	return Manifest{Value: v, UUID: vm.UUID, Zone: vm.Zonename, Nics: len(nics.Items()) > 0}, nil
}

// Mebi is how many bytes a MiB has.
const Mebi = 1 << 20

// ReadManifest reads a regular file of at most MaxManifest bytes.
func ReadManifest(path string) ([]byte, time.Time, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, time.Time{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, time.Time{}, fmt.Errorf("vminfo: %w: no regular file", fs.ErrInvalid)
	}
	if st.Size > MaxManifest {
		return nil, time.Time{}, fmt.Errorf("vminfo: %d bytes, a manifest may have %d", st.Size, MaxManifest)
	}
	text := make([]byte, st.Size) // if it grows meanwhile, the closing of the file makes an event
	read := 0
	for read < len(text) {
		n, err := unix.Read(fd, text[read:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		if n == 0 {
			break
		}
		read += n
	}
	return text[:read], time.Unix(st.Mtim.Unix()), nil
}

// Number returns a positive number of a manifest.
func (m Manifest) Number(name string, none int64) int64 {
	v, _ := m.Value.Get(name)
	if n, err := strconv.ParseInt(v.Literal(), 10, 64); err == nil && v.IsNumber() && n > 0 {
		return n
	}
	return none
}
