package main

import (
	"strings"
	"testing"
)

// An agent does not start with a door that lets in each user of its node.
func TestAgentRefusesOpenDoors(t *testing.T) {
	const agent = "[agent]\ncn = \"564d69b1-a178-4fbe-b36f-3f2b7fd7ed01\"\nservers = [\"http://10.0.0.1:7420\"]\n"
	for line, want := range map[string]string{
		`cn-api = "127.0.0.1:5309"`:                    "each user of this node can stop its VMs",
		`cn-api = "10.0.0.11:5309"`:                    "--cn-api 10.0.0.11:5309 is reachable from other machines",
		"cn-api = \"127.0.0.1:5309\"\ninsecure = true": "",
		`socket = "agent.sock"`:                        "absolute path",
		`socket-group = "no such group"`:               "this machine has no such group",
		`vminfod-users = "no such user"`:               "this machine has no user",
		`vminfod-users = "root,1001"`:                  "",
		`socket = "off"`:                               "",
	} {
		code, out, errs := rutter(t, "config", "check", configIn(t, agent+line+"\n"))
		if (code == 0) != (want == "") || want != "" && !strings.Contains(out+errs, want) {
			t.Errorf("%s: exit code %d, %s%s, want %q", line, code, out, errs, want)
		}
	}
}
