//go:build release

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	spec "github.com/opencontainers/image-spec/specs-go/v1"
)

// platform is what the image of an architecture is made of.
type platform struct {
	arch               string
	program, copyright []byte
}

// imageUser is the number of the user and group that a container runs as unless it is
// told otherwise: as in other images from scratch, one that no system gives to people.
const imageUser = 65532

// layout collects the files of an OCI image layout. It is written here and not by a
// library of registries: an image from scratch is one layer and three documents, whose
// Go types are those of the specification.
type layout struct {
	blobs []entry
}

// add adds a blob and returns what refers to it.
func (l *layout) add(mediaType string, data []byte) spec.Descriptor {
	sum := digest.FromBytes(data)
	l.blobs = append(l.blobs, entry{name: "blobs/sha256/" + sum.Encoded(), mode: 0o644, data: data})
	return spec.Descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(data))}
}

// document adds a blob that is JSON.
func (l *layout) document(mediaType string, v any) (spec.Descriptor, error) {
	data, err := json.Marshal(v)
	return l.add(mediaType, data), err
}

// writeImage makes the image of all architectures: an archive of an OCI image layout,
// whose index names an index of one manifest for each architecture.
func writeImage(o options, platforms []platform) error {
	var l layout
	list := spec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: spec.MediaTypeImageIndex, Annotations: labels(o)}
	for _, p := range platforms {
		manifest, err := addPlatform(o, &l, p)
		if err != nil {
			return fmt.Errorf("image for %s: %w", p.arch, err)
		}
		list.Manifests = append(list.Manifests, manifest)
	}
	named, err := l.document(spec.MediaTypeImageIndex, list)
	if err != nil {
		return err
	}
	name := "rutter:" + imageTag(o.version)
	named.Annotations = map[string]string{spec.AnnotationRefName: name, "io.containerd.image.name": "localhost/" + name}
	index, err := json.Marshal(spec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: spec.MediaTypeImageIndex, Manifests: []spec.Descriptor{named}})
	if err != nil {
		return err
	}
	mark, err := json.Marshal(spec.ImageLayout{Version: spec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	files := append(l.blobs, entry{name: spec.ImageIndexFile, mode: 0o644, data: index}, entry{name: spec.ImageLayoutFile, mode: 0o644, data: mark})
	var b bytes.Buffer
	if err := writeTar(&b, o.built, files); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, "rutter-"+o.version+"-oci.tar"), b.Bytes(), 0o644)
}

// addPlatform adds the image of one architecture, and returns what refers to its
// manifest.
func addPlatform(o options, l *layout, p platform) (spec.Descriptor, error) {
	var plain bytes.Buffer
	if err := writeTar(&plain, o.built, rootOf(p)); err != nil {
		return spec.Descriptor{}, err
	}
	layer := l.add(spec.MediaTypeImageLayerGzip, compressed(plain.Bytes()))
	runs := spec.Platform{Architecture: p.arch, OS: "linux"}
	created := o.built
	config, err := l.document(spec.MediaTypeImageConfig, spec.Image{
		Created: &created, Platform: runs,
		Config: spec.ImageConfig{
			User:       fmt.Sprintf("%d:%d", imageUser, imageUser),
			Env:        []string{"PATH=/usr/bin"},
			Entrypoint: []string{"/usr/bin/rutter"}, Cmd: []string{"--help"},
			WorkingDir:   "/var/lib/rutter",
			Volumes:      map[string]struct{}{"/var/lib/rutter": {}},
			ExposedPorts: map[string]struct{}{"7420/tcp": {}, "7421/tcp": {}, "1296/tcp": {}},
			StopSignal:   "SIGTERM", Labels: labels(o),
		},
		RootFS:  spec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain.Bytes())}},
		History: []spec.History{{Created: &created, CreatedBy: "make release", Comment: "one static program"}},
	})
	if err != nil {
		return spec.Descriptor{}, err
	}
	manifest, err := l.document(spec.MediaTypeImageManifest, spec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: spec.MediaTypeImageManifest,
		Config: config, Layers: []spec.Descriptor{layer}, Annotations: labels(o),
	})
	manifest.Platform = &runs
	return manifest, err
}

// rootOf is the root folder of a container: the program, a user with a home for a
// server's data, and the licences. The program trusts the authorities that it is given,
// so there are no others.
func rootOf(p platform) []entry {
	users := fmt.Sprintf("root:x:0:0:root:/:/usr/bin/rutter\nrutter:x:%d:%d:Rutter:/var/lib/rutter:/usr/bin/rutter\n", imageUser, imageUser)
	groups := fmt.Sprintf("root:x:0:\nrutter:x:%d:\n", imageUser)
	return []entry{
		{name: "usr/bin/rutter", mode: 0o755, data: p.program},
		{name: "usr/share/doc/rutter/copyright", mode: 0o644, data: p.copyright},
		{name: "etc/passwd", mode: 0o644, data: []byte(users)},
		{name: "etc/group", mode: 0o644, data: []byte(groups)},
		{name: "etc/rutter/", mode: 0o755},
		{name: "tmp/", mode: 0o1777},
		{name: "var/lib/rutter/", mode: 0o700, uid: imageUser, gid: imageUser},
	}
}

// labels say what the image is, in the words of the specification.
func labels(o options) map[string]string {
	title, _, _ := strings.Cut(description, "\n")
	all := map[string]string{
		spec.AnnotationTitle: "rutter", spec.AnnotationDescription: title, spec.AnnotationVersion: o.version,
		spec.AnnotationCreated: o.built.Format("2006-01-02T15:04:05Z"),
	}
	if o.revision != "" {
		all[spec.AnnotationRevision] = o.revision
	}
	return all
}

// imageTag is a version as the tag of an image, where + and ~ are not allowed.
func imageTag(version string) string { return strings.NewReplacer("+", "-", "~", "-").Replace(version) }
