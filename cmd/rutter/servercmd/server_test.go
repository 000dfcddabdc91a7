package servercmd

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/serve"
	"rutter/raftstore"
)

// The URLs of old services and who places are read, and what makes no sense is refused
// with the flag's name.
func TestBehind(t *testing.T) {
	read := func(args ...string) (cfg serve.TritonOptions, err error) {
		app := &cli.App{Flags: tritonFlags(), Action: func(c *cli.Context) (err error) {
			cfg, err = tritonConfigOf(c)
			return err
		}}
		err = app.Run(append([]string{"server"}, args...))
		return cfg, err
	}
	cfg, err := read("--cnapi", "127.0.0.1:8001", "--vmapi", "127.0.0.1:8002", "--cnapi-behind", "http://10.99.99.22/", "--vmapi-behind", "http://10.99.99.28:80", "--placement", "behind")
	if err != nil || cfg.Behind["cnapi"] != "http://10.99.99.22" || cfg.Behind["vmapi"] != "http://10.99.99.28:80" || !cfg.PlacementBehind {
		t.Errorf("%+v, %v", cfg, err)
	}
	if cfg, err = read("--cnapi", "127.0.0.1:8001", "--cnapi-behind", "http://10.99.99.22"); err != nil || cfg.PlacementBehind {
		t.Errorf("by default: %+v, %v", cfg, err)
	}
	for want, args := range map[string][]string{
		"--vmapi-behind": {"--vmapi", "127.0.0.1:8002", "--vmapi-behind", "10.99.99.28"},
		"give --cnapi":   {"--cnapi-behind", "http://10.99.99.22"},
		"own --vmapi":    {"--vmapi", "127.0.0.1:8002", "--vmapi-behind", "http://127.0.0.1:8002"},
		"own --cnapi":    {"--vmapi", "127.0.0.1:8002", "--cnapi", "127.0.0.1:80", "--vmapi-behind", "http://127.0.0.1"},
		"ours or behind": {"--placement", "both"},
		"--cnapi-behind": {"--placement", "behind"},
	} {
		if _, err := read(args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", args, err, want)
		}
	}
}

// A new server that was told of no cluster says what it waits for.
func TestWarnAlone(t *testing.T) {
	old := t.TempDir()
	if err := os.WriteFile(filepath.Join(old, "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg    raftstore.Config
		warned bool
	}{
		"nothing said": {raftstore.Config{Dir: t.TempDir()}, true},
		"it has data":  {raftstore.Config{Dir: old}, false},
		"bootstrap":    {raftstore.Config{Dir: t.TempDir(), Bootstrap: true}, false},
		"peers":        {raftstore.Config{Dir: t.TempDir(), InitialMembers: []raftstore.Member{{ID: "s1"}}}, false},
		"join":         {raftstore.Config{Dir: t.TempDir(), Join: []string{"10.0.0.1:7421"}}, false},
	} {
		var out bytes.Buffer
		warnAlone(c.cfg, slog.New(slog.NewTextHandler(&out, nil)))
		if got := strings.Contains(out.String(), "belongs to no cluster"); got != c.warned {
			t.Errorf("%s: warned %v, want %v: %s", name, got, c.warned, out.String())
		}
	}
}

// A service address is refused with what to do: one that no client can dial, one twice,
// and one that is this server's own peer address.
func TestServiceAddressFlag(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		want  string // of the error; "": none
	}{
		"both families": {[]string{"--service-address", "10.0.0.9/24@eth0", "--service-address", "fd00::9/64@eth0", "--napi", "10.0.0.9:80", "--triton-allow", "10.0.0.0/24=read"}, ""},
		"no link":       {[]string{"--service-address", "10.0.0.9/24"}, "want ADDRESS/PREFIX@LINK"},
		"twice":         {[]string{"--service-address", "10.0.0.9/24@eth0", "--service-address", "10.0.0.9/24@eth1"}, "named twice"},
		"peer port":     {[]string{"--service-address", "10.0.0.9/24@eth0", "--raft", "10.0.0.9:7421"}, "moves between servers"},
		"advertised":    {[]string{"--service-address", "10.0.0.9/24@eth0", "--advertise", "10.0.0.9:7421"}, "moves between servers"},
	} {
		app := &cli.App{Flags: Flags(), Action: Check, Writer: io.Discard, ErrWriter: io.Discard}
		err := app.Run(append([]string{"server", "--id", "s1", "--insecure", "--bootstrap"}, c.flags...))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
