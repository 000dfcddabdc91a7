package api

import (
	"testing"

	"rutter/log"
)

// No body makes the parser panic, and what it takes can be encoded.
func FuzzParseChange(f *testing.F) {
	f.Add([]byte(`{"ops":[{"action":"create","kind":"nic_tag","object":{"name":"a"}}]}`))
	f.Add([]byte(`{"id":"0193508e-7b2a-7c3d-8e4f-a1b2c3d4e5f6","ops":[{"action":"delete","kind":"nic","id":"90:b8:d0:01:02:03","if_match":3}]}`))
	f.Add([]byte(`{"ops":[{"action":"update","kind":"network","id":"x","object":{"routes":{"10.0.0.0/8":"10.0.0.1"},"subnet":"10.0.0.0/8"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := parseChange(body)
		if err != nil {
			if answer := errorOf(err); answer.Status < 400 || answer.Status >= 500 {
				t.Errorf("%q: status %d for what the client did wrong: %v", body, answer.Status, err)
			}
			return
		}
		if _, err := log.NewEncoder().Change(c); err != nil && len(body) < log.MaxChangeBytes {
			t.Errorf("%q: %v", body, err)
		}
	})
}
