package designation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rutter/log"
)

// Bounds of a request.
const (
	MaxServers  = 10_000 // that it may name
	maxTagSets  = 64
	maxTags     = 64 // alternatives for one network
	maxNear     = 1024
	maxAffinity = 64
	maxTraits   = 64
	maxText     = 255 // bytes of a trait, a tag, a name or a pattern
)

// Request is what a VM needs.
type Request struct {
	VM       log.UUID
	Owner    log.UUID
	Brand    string
	ram      uint64 // MiB
	quota    uint64 // MiB, of the zone
	fixed    uint64 // MiB that no ratio divides: disks and images
	cpu      uint64 // percent; 0: not limited
	vcpus    uint64
	traits   map[string]any
	spread   string
	ratios   *ratios // of the package; nil without one
	near     []log.UUID
	far      []log.UUID
	strict   bool
	affinity []affinity
	volumes  []log.UUID // VMs that must be on the server
	tags     [][]string // of each, one must be on the server
	// platforms of the package and the image, by SDC version
	packageMin, imageMin, imageMax map[string]string
	// Servers are those that are asked about; nil: all.
	Servers []log.UUID
}

// Body is the JSON of a request, by CNAPI's names.
type Body struct {
	VM      json.RawMessage `json:"vm"`
	Package json.RawMessage `json:"package"`
	Image   json.RawMessage `json:"image"`
	NICTags json.RawMessage `json:"nic_tags"`
	TagSets json.RawMessage `json:"nic_tag_requirements"`
	Servers json.RawMessage `json:"servers"`
}

// Invalid is a parameter that is wrong, in CNAPI's words.
type Invalid struct{ Field, Message string }

// Error implements error.
func (e *Invalid) Error() string { return e.Field + ": " + e.Message }

func invalid(field, format string, args ...any) error {
	return &Invalid{field, fmt.Sprintf(format, args...)}
}

// wireVM, wirePackage and wireImage are the objects of a request, as far as they matter.
type wireVM struct {
	UUID     string          `json:"vm_uuid"`
	Owner    string          `json:"owner_uuid"`
	Brand    any             `json:"brand"`
	RAM      any             `json:"ram"`
	Quota    any             `json:"quota"` // GiB
	CPU      any             `json:"cpu_cap"`
	VCPUs    any             `json:"vcpus"`
	Traits   any             `json:"traits"`
	Locality json.RawMessage `json:"locality"`
	Affinity json.RawMessage `json:"affinity"`
	Docker   any             `json:"docker"`
	Internal map[string]any  `json:"internal_metadata"`
	Disks    []struct {
		Size any `json:"size"`
	} `json:"disks"`
}

type wirePackage struct {
	RAM    any    `json:"max_physical_memory"`
	Quota  any    `json:"quota"` // MiB
	CPU    any    `json:"cpu_cap"`
	VCPUs  any    `json:"vcpus"`
	Brand  any    `json:"brand"`
	Traits any    `json:"traits"`
	Min    any    `json:"min_platform"`
	Spread string `json:"alloc_server_spread"`
	// PAPI's name, or the one that DAPI has
	OverCPU     any `json:"overprovision_cpu"`
	OverMemory  any `json:"overprovision_memory"`
	OverRAM     any `json:"overprovision_ram"`
	OverStorage any `json:"overprovision_storage"`
	OverDisk    any `json:"overprovision_disk"`
}

type wireImage struct {
	Type         string          `json:"type"`
	Size         any             `json:"image_size"` // MiB
	Traits       any             `json:"traits"`
	Requirements json.RawMessage `json:"requirements"`
	Files        []struct {
		Size any `json:"size"` // bytes
	} `json:"files"`
}

type wireRequirements struct {
	MinRAM any `json:"min_ram"`
	MaxRAM any `json:"max_ram"`
	Min    any `json:"min_platform"`
	Max    any `json:"max_platform"`
}

// Parse reads a request. An error is an *Invalid.
func Parse(body *Body) (*Request, error) {
	r := &Request{}
	for _, one := range []struct {
		field string
		raw   json.RawMessage
		must  bool
	}{{"package", body.Package, false}, {"image", body.Image, true}, {"vm", body.VM, true}} {
		if !isKind(one.raw, '{') && (one.must || !absent(one.raw)) {
			return nil, invalid(one.field, "value is not an object. (was: %s)", kindName(one.raw))
		}
	}
	if !isKind(body.NICTags, '[') {
		return nil, invalid("nic_tags", "value was not an array")
	}
	var vm wireVM
	var pkg *wirePackage
	var img wireImage
	var reqs wireRequirements
	if err := decode(body.Image, &img); err != nil {
		return nil, invalid("image", `"image" has invalid type`)
	}
	if !absent(img.Requirements) && decode(img.Requirements, &reqs) != nil {
		return nil, invalid("image", `"image.requirements" is invalid`)
	}
	if !absent(body.Package) {
		pkg = &wirePackage{}
		if err := decode(body.Package, pkg); err != nil {
			return nil, invalid("package", `"package" has invalid type`)
		}
	}
	if err := decode(body.VM, &vm); err != nil {
		return nil, invalid("vm", "VM object is an invalid type")
	}
	for _, step := range []func() error{
		func() error { return r.readImage(&img, &reqs) },
		func() error { return r.readPackage(pkg) },
		func() error { return r.readVM(&vm, pkg, &img, &reqs) },
		func() error { return r.readTraits(&vm, pkg, &img) },
		func() error { return r.readLocality(vm.Locality) },
		func() error { return r.readAffinity(vm.Affinity) },
		func() error { return r.readVolumes(&vm) },
		func() (err error) { r.Servers, err = ParseServers(body.Servers); return err },
		func() error { return r.readTags(body) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func isKind(raw json.RawMessage, first byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == first
}

// kindName is the kind of a JSON value, in JavaScript's words, as CNAPI says it.
func kindName(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0:
		return "[object Undefined]"
	case raw[0] == '{':
		return "[object Object]"
	case raw[0] == '[':
		return "[object Array]"
	case raw[0] == '"':
		return "[object String]"
	case raw[0] == 'n':
		return "[object Null]"
	case raw[0] == 't' || raw[0] == 'f':
		return "[object Boolean]"
	}
	return "[object Number]"
}

// figure reads a number, rounded up; absent is 0.
func figure(v any) (uint64, bool) {
	if v == nil {
		return 0, true
	}
	number, ok := v.(json.Number)
	before, after, _ := strings.Cut(number.String(), ".")
	n, err := strconv.ParseUint(before, 10, 64)
	if !ok || err != nil || n >= most || strings.Trim(after, "0123456789") != "" {
		return 0, false
	}
	if strings.Trim(after, "0") != "" {
		n++
	}
	return n, true
}

func (r *Request) readImage(img *wireImage, reqs *wireRequirements) (err error) {
	if _, ok := figure(img.Size); !ok {
		return invalid("image", `"image.image_size" has invalid type`)
	}
	if r.imageMin, err = platforms("image", "requirements.min_platform", reqs.Min); err != nil {
		return err
	}
	r.imageMax, err = platforms("image", "requirements.max_platform", reqs.Max)
	for _, one := range []struct {
		name string
		v    any
	}{{"min_ram", reqs.MinRAM}, {"max_ram", reqs.MaxRAM}} {
		if _, ok := figure(one.v); !ok {
			return invalid("image", `"image.requirements.%s" has invalid type`, one.name)
		}
	}
	return err
}

func (r *Request) readPackage(pkg *wirePackage) (err error) {
	if pkg == nil {
		return nil
	}
	r.ratios = &ratios{}
	for _, one := range []struct {
		name string
		v    any
		to   *uint64
	}{
		{"overprovision_cpu", pkg.OverCPU, &r.ratios.cpu},
		{"overprovision_memory", or(pkg.OverMemory, pkg.OverRAM), &r.ratios.ram},
		{"overprovision_storage", or(pkg.OverStorage, pkg.OverDisk), &r.ratios.disk},
	} {
		number, isNumber := one.v.(json.Number)
		if text, isText := one.v.(string); isText {
			number, isNumber = json.Number(text), true // as PAPI may have it
		}
		before, after, _ := strings.Cut(number.String(), ".")
		if one.v != nil && (!isNumber || !isDigits(before) || strings.Trim(after, "0123456789") != "") {
			return invalid("package", `"package.%s" has invalid type`, one.name)
		}
		*one.to = ratioOf(number)
	}
	if pkg.Spread != "" && !slices.Contains(spreads, pkg.Spread) {
		return invalid("package", `"package.alloc_server_spread" is none of %s`, strings.Join(spreads, ", "))
	}
	r.spread = pkg.Spread
	r.packageMin, err = platforms("package", "package.min_platform", pkg.Min)
	return err
}

func or(a, b any) any {
	if a != nil {
		return a
	}
	return b
}

// platforms reads {"7.0": "20130122T122401Z"}; other keys, such as smartos, are passed
// over. It may be a text of that too.
func platforms(field, path string, v any) (map[string]string, error) {
	if text, ok := v.(string); ok && text != "" {
		if decode([]byte(text), &v) != nil {
			return nil, invalid(field, `"%s" has invalid type`, path)
		}
	}
	if v == nil || v == "" {
		return nil, nil
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, invalid(field, `"%s" is not a hash`, path)
	}
	kept := make(map[string]string)
	for version, at := range object {
		text, ok := at.(string)
		if !ok || !isPlatform(text) {
			return nil, invalid(field, `"%s" contains an invalid platform date`, path)
		}
		if isVersion(version) {
			kept[version] = text
		}
	}
	return kept, nil
}

// isVersion reports whether text is digits, a point and digits.
func isVersion(text string) bool {
	a, b, ok := strings.Cut(text, ".")
	return ok && isDigits(a) && isDigits(b) && len(text) <= 8
}

// isPlatform reports whether text has the form 20130122T122401Z.
func isPlatform(text string) bool {
	return len(text) == len("20130122T122401Z") && isDigits(text[:8]) && text[8] == 'T' && isDigits(text[9:15]) && text[15] == 'Z'
}

func isDigits(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

// ParseServers reads a list of UUIDs, which may stand in a list of its own; nil is all.
func ParseServers(raw json.RawMessage) ([]log.UUID, error) {
	if absent(raw) {
		return nil, nil
	}
	var list []any
	if decode(raw, &list) != nil {
		return nil, invalid("servers", "value was not an array")
	}
	if len(list) == 1 {
		if inner, ok := list[0].([]any); ok {
			list = inner // as VMAPI sends them
		}
	}
	if len(list) > MaxServers {
		return nil, invalid("servers", "there are %d, and may be %d", len(list), MaxServers)
	}
	uuids := make([]log.UUID, 0, len(list))
	for _, one := range list {
		text, _ := one.(string)
		uuid, err := log.ParseUUID(strings.ToLower(text))
		if err != nil {
			return nil, invalid("servers", "invalid server UUID")
		}
		uuids = append(uuids, uuid)
	}
	return uuids, nil
}

// Require adds sets of NIC tags: of each, one must be on the server. An error is an
// *Invalid.
func (r *Request) Require(sets [][]string) error {
	if len(r.tags)+len(sets) > maxTagSets {
		return invalid("networks", "there are %d, and may be %d", len(r.tags)+len(sets), maxTagSets)
	}
	r.tags = append(r.tags, sets...)
	return nil
}

// readTags reads the nic tags: sets of alternatives, or single ones.
func (r *Request) readTags(body *Body) error {
	var single []any
	_ = decode(body.NICTags, &single) // it is a list
	if len(single) > maxTagSets {
		return invalid("nic_tags", "there are %d, and may be %d", len(single), maxTagSets)
	}
	for _, one := range single {
		tag, ok := one.(string)
		if !ok || len(tag) > maxText {
			return invalid("nic_tags", "invalid nic_tag")
		}
		r.tags = append(r.tags, []string{tag})
	}
	if absent(body.TagSets) {
		return nil
	}
	if !isKind(body.TagSets, '[') {
		return invalid("nic_tag_requirements", "value was not an array")
	}
	var sets [][]string
	if decode(body.TagSets, &sets) != nil || len(sets) > maxTagSets || slices.ContainsFunc(sets, func(set []string) bool {
		return len(set) == 0 || len(set) > maxTags || slices.ContainsFunc(set, func(tag string) bool { return len(tag) > maxText })
	}) {
		return invalid("nic_tag_requirements", "it is no list of at most %d lists of 1 to %d nic tags", maxTagSets, maxTags)
	}
	r.tags = sets
	return nil
}
