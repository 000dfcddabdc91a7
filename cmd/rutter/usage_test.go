package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/term"
)

// rutter runs the program and returns its exit code and what it printed.
func rutter(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"rutter"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// Flags that make no sense, alone or together: exit code 2, and a text that
// says what was wrong and what to do.
func TestWrongUsage(t *testing.T) {
	const uuid = "564d69b1-a178-4fbe-b36f-3f2b7fd7ed01"
	for _, test := range []struct {
		args string
		want string
	}{
		{"server", "--id is missing: give each server"},
		{"server --id s1 --bootstrap --join 127.0.0.1:7421", "exclude each other"},
		{"server --id s1 --bootstrap --peers s1=127.0.0.1:7421", "exclude each other"},
		{"server --id s1 --peers s1", "is not ID=HOST:PORT"},
		{"server --id s1 --peers s1=127.0.0.1:1,s1=127.0.0.1:2", "named twice"},
		{"server --id s1 --peers s2=127.0.0.1:7421", "does not name this server"},
		{"server --id s1 --listen 0.0.0.0:7420", "say --insecure"},
		{"server --id s1 --raft example.com:7421", "say --insecure"},
		{"server --id s1 --svp 0.0.0.0:1296", "say --insecure"},
		{"server --id s1 --listen 7420", "want HOST:PORT"},
		{"server --id s1 --raft off", "cannot be off"},
		{"server --id s1 --raft-log sqlite", "want boltdb or wal"},
		{"server --id s1 extra", "takes no arguments"},
		{"server --id s1 --bootstrap --log-level loud", "want debug, info, warn or error"},
		{"server --no-such-flag", "rutter server has no flag --no-such-flag: rutter server --help lists those that there are"},
		{"network list --sevrer http://127.0.0.1:1", "Did you mean --server?"},
		{"log tail -n x", `-n "x": want a whole number, from 0 on`},
		{"wait --timeout soon", `--timeout "soon": want a time, as in 30s`},
		{"wait --seq", "--seq wants a value"},
		{"agent join --token-file a", "--server, --ca-hash, --tls-dir are missing: rutter agent join --help has examples"},
		{"agent join --token a", "has no flag --token"},
		{"agent join --server https://a:1 --ca-hash x --tls-dir y", "the token is missing: --token-file FILE"},
		{"network get", "the id is missing: rutter network get ID\n"},
		{"token create", "--cn is missing: rutter token create --help has examples"},
		{"agent", "--cn is missing"},
		{"agent --cn cn1", "want 36 characters"},
		{"trace a b -o csv", "is not one table: want table, json or ndjson"},
		{"log stats -o csv", "is not one table"},
		{"log stats -o yaml", `--output "yaml": want table`},
		{"agent --cn " + uuid, "--servers is missing"},
		{"agent --cn " + uuid + " --servers 10.0.0.1:7420", "want a base URL"},
		{"agent --cn " + uuid + " --servers http://10.0.0.1:7420 --svp 0.0.0.0:1296", "say --insecure"},
		{"dev --port 70000", "want one from 1 to"},
		{"dev extra", "takes no arguments"},
		{"demo extra", "takes no arguments"},
		{"version -o xml", "want table, json or ndjson"},
		{"tag create", "no fields: give FIELD=VALUE"},
		{"tag create mtu", "want FIELD=VALUE"},
		{"tag create -f x.json mtu=1", "exclude each other"},
		{"tag get", "the id is missing"},
		{"tag list external", "want FIELD=VALUE"},
		{"tag delete a b", "takes one id"},
		{"tag list -s 127.0.0.1:7420", "want a base URL"},
		{"log tail 5", "takes no arguments"},
		{"log tail --kind nics", "want one of nic_tag"},
		{"log tail --vnet 99999999", "a vnet is a number"},
		{"log show x", "want the seq of an entry"},
		{"log show 1 --after 5", "want one SEQ, or --after and --limit"},
		{"log show 0", "want the seq of an entry"},
		{"lookup vl3 1", "want two arguments or more"},
		{"lookup vl3 99999999 10.0.0.1", "want a vnet"},
		{"lookup vl3 1 10.0.0", `"10.0.0": want an IP address`},
		{"lookup vl2 1 10.0.0.1", "want 12 hexadecimal digits"},
		{"lookup vl2 1 90:b8:d0:00:00:01 --svp nowhere", "want host:port"},
		{"cluster status extra", "takes no arguments"},
		{"triton check", "want one URL, as in"},
		{"triton check napi.my.domain", "want one such as http://napi.example.com"},
		{"triton check http://a --service papi", "want napi, cnapi or vmapi"},
		{"triton check http://a --timeout 0s", "want more than 0"},
		{"import napi", "want the URL of a NAPI, or a folder"},
		{"import napi /no/such/folder", "want a URL that begins with http"},
		{"cluster members extra", "takes no arguments"},
		{"cluster join s4", "want two arguments"},
		{"cluster join s4 10.0.0.4", "want the HOST:PORT"},
		{"cluster promote", "want one argument"},
		{"cluster rebuild", "want one argument"},
		{"cluster remove s1 s2", "want one argument"},
		{"cluster transfer s1 s2", "at most one argument"},
		{"cluster recover --id s1", "--data is missing"},
		{"cluster recover --data x", "--id is missing"},
		{"cluster recover extra --id s1 --data x", "takes no arguments"},
		{"cluster skip --index 5", "--data is missing"},
		{"cluster skip --data x", "want one of --index, --from, --list and --undo"},
		{"cluster skip --data x --list --index 5", "want one of --index, --from, --list and --undo"},
		{"cluster skip --data x --index 5 --change y", "--change"},
		{"snapshot save", "want one argument, FILE"},
		{"snapshot save main.go", "is there already"},
		{"snapshot inspect", "want one argument, FILE"},
		{"snapshot inspect x --data y", "takes no arguments"},
		{"snapshot restore x --id s1 --data y", "--raft is missing"},
		{"snapshot restore x --raft 10.0.0.1:1 --data y", "--id is missing"},
		{"config print servers", "is no section"},
		{"config print server -- --nonsense", "has no flag --nonsense"},
		{"config check", "want one argument, FILE"},
		{"config check /no/such/file", "no such file"},
		{"server --config /no/such/file", "no such file"},
		{"tag create name=a --wait everywhere", "want fabric"},
		{"tag create name=a --wait fabric --timeout 20m", "want 1ms to"},
		{"completion bash extra", "takes no arguments"},
		{"nonsense", `rutter has no command "nonsense": rutter --help lists`},
		{"netwrok list", `Did you mean "network"?`},
		{"log tial", `rutter log has no command "tial"`},
		{"log tial", `Did you mean "tail"?`},
		{"cluster stats --help", "no command"},
		{"help nonsense", `no command "nonsense"`},
		{"log help nonsense", `no command "nonsense"`},
		{"wait --seq x", `--seq "x": want a seq, or a cursor`},
		{"wait --scope vnet:99999999", "--scope"},
		{"wait 5", "takes no arguments"},
	} {
		t.Run(test.args, func(t *testing.T) {
			code, _, stderr := rutter(t, strings.Fields(test.args)...)
			if code != term.ExitUsage || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, want %d; it said %q, want %q in it", code, term.ExitUsage, stderr, test.want)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	// Port 1 of loopback has no listener.
	code, _, stderr := rutter(t, "cluster", "status", "-s", "http://127.0.0.1:1")
	if code != term.ExitNoReply {
		t.Errorf("exit code %d, want %d; it said %q", code, term.ExitNoReply, stderr)
	}
}

// Every command has a usage line and examples, of commands and flags that there are.
func TestHelp(t *testing.T) {
	app := newApp(nil, nil)
	var check func(path string, commands []*cli.Command)
	check = func(path string, commands []*cli.Command) {
		for _, c := range commands {
			name := path + " " + c.Name
			if c.Usage == "" {
				t.Errorf("%s has no usage line", name)
			}
			if !strings.Contains(c.Description, "Examples:") {
				t.Errorf("%s has no examples in its help", name)
			}
			for line := range strings.Lines(c.Description) {
				if words := strings.Fields(line); len(words) > 1 && words[0] == "rutter" && strings.HasPrefix(line, "  ") {
					if wrong := wrongIn(app.Commands, words[1:]); wrong != "" {
						t.Errorf("%s: the example %q: %s", name, strings.TrimSpace(line), wrong)
					}
				}
			}
			check(name, c.Subcommands)
		}
	}
	check("rutter", app.Commands)
	code, stdout, _ := rutter(t, "--help")
	if code != 0 || !strings.Contains(stdout, "rutter demo") {
		t.Errorf("--help: exit code %d, %q", code, stdout)
	}
}

// wrongIn says what there is not of a command line.
func wrongIn(commands []*cli.Command, words []string) string {
	var flags []cli.Flag
	for ; len(words) > 0; words = words[1:] {
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(words[0]) })
		if at < 0 {
			break
		}
		flags, commands = commands[at].Flags, commands[at].Subcommands
	}
	if len(commands) > 0 && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		return "there is no command " + words[0]
	}
	for _, word := range words {
		if word == "#" || word == "|" || word == "&" || word == "--" {
			break
		}
		name, isLong := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if isLong && name != "help" && !slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }) {
			return "it has no flag " + word
		}
	}
	return ""
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := rutter(t, "version", "-o", "json"); code != 0 || !strings.Contains(stdout, `"format": 1`) {
		t.Errorf("exit code %d, %q", code, stdout)
	}
}
