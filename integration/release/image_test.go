package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// descriptor refers to a blob of an image.
type descriptor struct {
	MediaType, Digest string
	Size              int
	Platform          struct{ Architecture, OS string }
	Annotations       map[string]string
}

// image is the file of the image of all architectures.
func (a artefacts) image() string { return filepath.Join(a.dir, "rutter-"+a.version+"-oci.tar") }

// blobs are the files of the image's layout by their names, of which those of blobs
// are their sums.
func blobs(t *testing.T, a artefacts) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, e := range entriesOf(t, read(t, a.image())) {
		if strings.HasSuffix(e.header.Name, "/") {
			continue
		}
		files[e.header.Name] = e.data
		if sum, isBlob := strings.CutPrefix(e.header.Name, "blobs/sha256/"); isBlob && sum != fmt.Sprintf("%x", sha256.Sum256(e.data)) {
			t.Errorf("%s has another sum", e.header.Name)
		}
	}
	return files
}

// follow reads the blob of a descriptor.
func follow(t *testing.T, files map[string][]byte, d descriptor, mediaType string, v any) []byte {
	t.Helper()
	data, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if !ok || len(data) != d.Size || d.MediaType != mediaType {
		t.Fatalf("%+v is there: %t, with %d bytes; want media type %s", d, ok, len(data), mediaType)
	}
	if v != nil {
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

type index struct{ Manifests []descriptor }

// The image has the program and nothing that it does not need; it runs without a root
// file system of a distribution, as a user without rights.
func TestImage(t *testing.T) {
	a := made(t)
	files := blobs(t, a)
	var outer, list index
	if err := json.Unmarshal(files["index.json"], &outer); err != nil || len(outer.Manifests) != 1 || string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Fatalf("index.json %s, oci-layout %s, %v", files["index.json"], files["oci-layout"], err)
	}
	follow(t, files, outer.Manifests[0], "application/vnd.oci.image.index.v1+json", &list)
	if len(list.Manifests) != 1 || list.Manifests[0].Platform.Architecture != runtime.GOARCH || list.Manifests[0].Platform.OS != "linux" {
		t.Fatalf("manifests are %+v", list.Manifests)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	follow(t, files, list.Manifests[0], "application/vnd.oci.image.manifest.v1+json", &manifest)
	var config struct {
		Architecture, OS string
		Config           struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
			Volumes    map[string]struct{}
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	follow(t, files, manifest.Config, "application/vnd.oci.image.config.v1+json", &config)
	c := config.Config
	if config.Architecture != runtime.GOARCH || c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/usr/bin/rutter" || len(c.Volumes) != 1 ||
		c.Labels["org.opencontainers.image.version"] != a.version || c.Labels["org.opencontainers.image.revision"] != "0123456789abcdef" {
		t.Errorf("config is %+v", config)
	}
	if len(manifest.Layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
		t.Fatalf("layers are %+v, %v", manifest.Layers, config.RootFS)
	}
	layer := unzipped(t, follow(t, files, manifest.Layers[0], "application/vnd.oci.image.layer.v1.tar+gzip", nil))
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); sum != config.RootFS.DiffIDs[0] {
		t.Errorf("the layer is %s, and its config says %s", sum, config.RootFS.DiffIDs[0])
	}
	runIn(t, a, layer, c.Entrypoint[0])
}

// runIn unpacks a layer and runs the image's program in it.
func runIn(t *testing.T, a artefacts, layer []byte, entrypoint string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	root := t.TempDir()
	unpack := exec.Command("tar", "-x", "-p", "-C", root)
	unpack.Stdin = bytes.NewReader(layer)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	// The folders above it are those of a test, which other users may not enter.
	inside := func(args ...string) (string, error) {
		cmd := exec.Command(entrypoint, args...)
		cmd.Dir, cmd.Env = "/var/lib/rutter", []string{"PATH=/usr/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := inside("--version"); err != nil || !strings.HasPrefix(out, "rutter "+a.version+" ") {
		t.Errorf("in its image the program says %q, %v", out, err)
	}
	// Its user may write where a server's data is, and nowhere else but /tmp.
	if out, err := inside("manpages", "/var/lib/rutter/man"); err != nil {
		t.Errorf("/var/lib/rutter: %q, %v", out, err)
	}
	if out, err := inside("manpages", "/etc/rutter/man"); err == nil || !strings.Contains(out, "permission denied") {
		t.Errorf("/etc/rutter: %q, %v", out, err)
	}
}

// A container engine takes the image.
func TestImageIsPulled(t *testing.T) {
	need(t, "podman")
	if os.Getuid() != 0 {
		t.Skip("podman has no subordinate users here")
	}
	a := made(t)
	dir, err := os.MkdirTemp("", "p") // podman takes 50 characters at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	podman := func(args ...string) string {
		return strings.TrimSpace(printed(t, "podman", append([]string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs"}, args...)...))
	}
	podman("pull", "-q", "oci-archive:"+a.image())
	got := podman("image", "inspect", "--format", "{{.Architecture}} {{.User}} {{index .RepoTags 0}}", "localhost/rutter:"+strings.NewReplacer("~", "-", "+", "-").Replace(a.version))
	if want := runtime.GOARCH + " 65532:65532 localhost/rutter:"; !strings.HasPrefix(got, want) {
		t.Errorf("the image is %q, want %s…", got, want)
	}
}
