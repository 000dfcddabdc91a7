package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/netlab"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/term"
)

// certificates is the folder of certificates, and of authorities for this run only.
func (s *stage) certificates() string { return filepath.Join(s.folder, "tls") }

// certify gives servers and the operator certificates, unless the demo runs without
// TLS.
func (s *stage) certify(servers ...string) error {
	if s.plain {
		return nil
	}
	if err := pkiclient.CreateLocal(s.certificates(), servers, []string{serverHost}); err != nil {
		return err
	}
	s.say.detail("authorities of this demo: each server and the operator has a certificate")
	return nil
}

// join gets a compute node its certificate the usual way: an operator makes a token,
// and the node joins from its own namespace.
func (s *stage) join(ctx context.Context, cn *computeNode) error {
	if s.plain {
		return nil
	}
	servers := s.api.Servers()
	text, err := s.command(ctx, nil, "", "token", "create", "--cn", cn.id.String(), "-o", "json",
		"--tls-dir", pkiclient.Operator(s.certificates()), "-s", strings.Join(servers, ","))
	if err != nil {
		return err
	}
	var made struct {
		Token string `json:"token"`
		Hash  string `json:"ca_hash"`
	}
	if err := json.Unmarshal(text, &made); err != nil {
		return fmt.Errorf("token create: %w", err)
	}
	args := []string{"agent", "join", "--token-file", "-", "--ca-hash", made.Hash, "--tls-dir", filepath.Join(s.certificates(), cn.id.String())}
	for _, server := range servers {
		args = append(args, "--server", server)
	}
	_, err = s.command(ctx, &cn.ns, made.Token, args...)
	return err
}

// command runs a command of this program to its end, in a namespace if one is
// given, and returns what it printed.
func (s *stage) command(ctx context.Context, in *netlab.Namespace, input string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.program, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	launch := cmd.Start
	if in != nil {
		launch = func() error { return in.Do(cmd.Start) }
	}
	err := launch()
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("rutter %s %s: %w: %s", args[0], args[1], err, strings.TrimSpace(errs.String()))
	}
	return out.Bytes(), nil
}

// secured are the flags with which a process shows its certificate.
func (s *stage) secured(name string) []string {
	if s.plain {
		return []string{"--insecure"}
	}
	return []string{"--tls-dir", filepath.Join(s.certificates(), name)}
}

func (s *stage) scheme() string {
	if s.plain {
		return "http://"
	}
	return "https://"
}

// connect makes the clients of the servers, as an operator.
func (s *stage) connect(urls []string) error {
	cfg := client.Config{Servers: urls, AttemptTimeout: 2 * time.Second}
	s.client = http.DefaultClient
	if !s.plain {
		keeper, err := tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(pkiclient.Operator(s.certificates())), Name: pki.Clients})
		if err != nil {
			return err
		}
		cfg.DialTLS = term.DialServer(keeper)
		s.client = &http.Client{Transport: &http.Transport{DialTLSContext: cfg.DialTLS}}
	}
	var err error
	s.api, err = client.New(cfg)
	return err
}
