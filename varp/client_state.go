package varp

import "time"

// ServerState is what a Client knows of one of its servers.
type ServerState struct {
	Server    string    `json:"server"`            // as it was configured
	Address   string    `json:"address,omitempty"` // of the connection, host:port; "" without one
	LastReply time.Time `json:"last_reply"`        // the last valid reply; zero: none
	LastError string    `json:"last_error,omitempty"`
	// LastErrorAt is when the connection failed or could not be made; zero: never.
	LastErrorAt time.Time `json:"last_error_at"`
}

// Servers returns the state of each server, in the order of preference.
func (c *Client) Servers() []ServerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	states := make([]ServerState, 0, len(c.peers))
	for _, p := range c.peers {
		s := ServerState{Server: p.addr, LastErrorAt: p.lastErrorAt}
		if at := p.lastReply.Load(); at != 0 {
			s.LastReply = time.Unix(0, at)
		}
		if p.lastError != nil {
			s.LastError = p.lastError.Error()
		}
		if p.conn != nil {
			if cause, _ := p.conn.ended(); cause == nil {
				s.Address = p.at
			} else {
				s.LastError, s.LastErrorAt = cause.Error(), p.conn.endedAt()
			}
		}
		states = append(states, s)
	}
	return states
}
