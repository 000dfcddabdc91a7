package importcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"rutter/cmd/rutter/term"
	"rutter/log"
)

// maxFiles bounds a folder: one for the addresses of each network, and some.
const maxFiles = 1 << 17

// Names that are no kind of Rutter's.
const (
	fabricsName  = "fabrics"
	overlayName  = "portolan_vnet_mac_ip"
	underlayName = "portolan_underlay_mappings"
	ipsPrefix    = "napi_ips_"
)

// namesOf are the names of files and buckets by kind.
var namesOf = map[string]log.Kind{
	"nic_tags": log.KindNICTag, "networks": log.KindNetwork, "nics": log.KindNIC, "ips": log.KindIP, "network_pools": log.KindNetworkPool,
	"vlans": log.KindFabricVLAN, "fabric_vlans": log.KindFabricVLAN, "aggregations": log.KindAggregation, "routers": log.KindRouter,
}

// kindNamed returns the kind of a file or bucket. special is its name if it has no kind
// of Rutter's.
func kindNamed(name string) (kind log.Kind, special string, ok bool) {
	name, _, _ = strings.Cut(name, ".")
	if strings.HasPrefix(name, ipsPrefix) || strings.HasPrefix(name, "ips_") {
		return log.KindIP, "", true
	}
	if name == overlayName || name == underlayName {
		return 0, name, true
	}
	name = strings.TrimPrefix(name, "napi_")
	if name == fabricsName {
		return 0, name, true
	}
	kind, ok = namesOf[name]
	return kind, "", ok
}

// readPath reads a folder, or one file.
func (in *installation) readPath(ctx context.Context, path string, tell progress) error {
	files := 0
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if files++; files > maxFiles {
			return fmt.Errorf("%s has more than %d files: put NAPI's alone into a folder", path, maxFiles)
		}
		if ext := filepath.Ext(name); name != path && ext != ".json" && ext != ".ndjson" {
			in.skip(name)
			return nil
		}
		f, err := term.Input(ctx, name)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := in.readFile(f, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		tell(filepath.Base(name), in.count, 0)
		return nil
	})
}

// readFile reads the objects of a file.
func (in *installation) readFile(r io.Reader, name string) error {
	kind, special, known := kindNamed(filepath.Base(name))
	n := 0
	return eachObject(r, func(raw json.RawMessage) error {
		n++
		var theirs map[string]json.RawMessage
		if err := json.Unmarshal(raw, &theirs); err != nil {
			return fmt.Errorf("object %d is none: it begins with %s", n, clip(raw))
		}
		from := filepath.Base(name)
		if bucket, value, is := fromBucket(theirs); is {
			kind, special, known := kindNamed(bucket)
			if !known {
				in.skip(bucket)
				return nil
			}
			return in.take(kind, special, value, bucket, from)
		}
		if !known {
			return fmt.Errorf("object %d is of no bucket, and the file's name does not say what it holds: name it nics, networks, nic_tags, ips, network_pools, vlans, aggregations, routers, %s or %s, with .json or .ndjson behind", n, overlayName, underlayName)
		}
		return in.take(kind, special, theirs, strings.TrimSuffix(from, filepath.Ext(from)), from)
	})
}

func (in *installation) skip(what string) {
	if !slices.Contains(in.skipped, what) && len(in.skipped) < maxFiles {
		in.skipped = append(in.skipped, what)
	}
}

// fromBucket unwraps a line of a dump: {bucket, key, value, _etag}.
func fromBucket(theirs map[string]json.RawMessage) (bucket string, value map[string]json.RawMessage, ok bool) {
	if json.Unmarshal(theirs["bucket"], &bucket) != nil || bucket == "" || json.Unmarshal(theirs["value"], &value) != nil || value == nil {
		return "", nil, false
	}
	return bucket, value, true
}

// take keeps one object of what a file or bucket holds.
func (in *installation) take(kind log.Kind, special string, theirs map[string]json.RawMessage, bucket, from string) error {
	if in.count+len(in.overlays)+len(in.under) >= maxObjects {
		return fmt.Errorf("there are more than %d objects: bring them in several parts", maxObjects)
	}
	switch special {
	case fabricsName:
		in.takeFabric(theirs, from)
		return nil
	case overlayName:
		in.takeOverlay(theirs, from)
		return nil
	case underlayName:
		in.takeUnderlay(theirs, from)
		return nil
	}
	if _, has := theirs["network_uuid"]; kind == log.KindIP && !has {
		// A bucket of addresses has its network in its name.
		_, uuid, _ := strings.Cut(bucket, "ips_")
		if b, err := json.Marshal(strings.ReplaceAll(uuid, "_", "-")); err == nil && uuid != "" {
			theirs["network_uuid"] = b
		}
	}
	in.takeObject(kind, theirs, from)
	return nil
}

// takeObject keeps an object, or its faults.
func (in *installation) takeObject(kind log.Kind, theirs map[string]json.RawMessage, from string) {
	r, refusal := in.readObject(kind, theirs, from)
	if refusal == nil {
		in.add(r)
		return
	}
	id := ""
	for _, name := range []string{"mac", "uuid", "id", "ip", "name"} {
		if raw, has := theirs[name]; has && id == "" {
			id = bare(json.RawMessage(clip(raw)))
		}
	}
	in.problems = append(in.problems, problemsOf(refusal, kind, id, from)...)
}
