package main

import (
	"strings"
	"testing"
)

// TestTritonFlags: listeners for strangers say whom they let in, and the settings
// show them.
func TestTritonFlags(t *testing.T) {
	const server = "server --id s1 --bootstrap "
	for _, test := range []struct{ args, want string }{
		{server + "--napi 0.0.0.0:8080", "nobody is let in: name them with --triton-allow"},
		{server + "--napi 80", "want HOST:PORT"},
		{server + "--triton-allow 10.0.0.0/8", "want CIDR=read or CIDR=write"},
		{server + "--triton-allow 10.0.0.1/8=read", "has host bits: is it 10.0.0.0/8?"},
		{server + "--triton-admin x", "want 36 characters"},
	} {
		code, _, stderr := rutter(t, strings.Fields(test.args)...)
		if code != 2 || !strings.Contains(stderr, test.want) {
			t.Errorf("rutter %s: got code %d, %q; want 2 and %q", test.args, code, stderr, test.want)
		}
	}
	_, stdout, _ := rutter(t, "config", "print", "server", "--", "--id", "s1", "--napi", "10.0.0.1:80", "--triton-allow", "10.0.0.0/8=read", "--triton-allow", "10.1.0.0/16=write")
	for _, want := range []string{`napi = "10.0.0.1:80"`, `cnapi = "off"`, `triton-allow = ["10.0.0.0/8=read", "10.1.0.0/16=write"]`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("config print: got %s\nwant it to have %s", stdout, want)
		}
	}
}
