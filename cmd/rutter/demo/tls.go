package demo

import (
	"net/http"
	"path/filepath"
	"time"

	"rutter/api/client"
	"rutter/api/pki"
	"rutter/api/tlsgate"
	"rutter/cmd/rutter/certcmd"
	"rutter/cmd/rutter/term"
	"rutter/log"
)

// certificates is the folder of them, and of authorities that nobody keeps.
func (s *stage) certificates() string { return filepath.Join(s.folder, "tls") }

// certify gives everybody a certificate, unless the demo goes without.
func (s *stage) certify(servers ...string) error {
	if s.plain {
		return nil
	}
	var cns []log.UUID
	for _, cn := range s.cns {
		cns = append(cns, cn.id)
	}
	if err := certcmd.Throwaway(s.certificates(), servers, []string{serverHost}, cns); err != nil {
		return err
	}
	s.say.tell("authorities of this demo: each server, each CN and the operator has a certificate")
	return nil
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
		keeper, err := tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(certcmd.Operator(s.certificates())), Name: pki.Clients})
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
