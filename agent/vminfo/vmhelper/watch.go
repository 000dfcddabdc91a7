package vmhelper

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	defaultProbeEvery = 2 * time.Second
	// defaultProbeWithin is generous: the answer takes microseconds, on a machine that is not
	// busy with other things.
	defaultProbeWithin = 5 * time.Second
	// maxHung is how many probes in succession must have no answer until requests under way
	// are ended and new ones refused.
	maxHung = 2
)

// Status is what a client knows of its helper.
type Status struct {
	Socket  string    `json:"socket"`
	Answers bool      `json:"answers"`
	Since   time.Time `json:"since,omitzero"`    // of Answers; zero: it was not asked yet
	Failure string    `json:"failure,omitempty"` // why it does not answer
	// Helper is its last answer; nil: none yet.
	Helper *Report `json:"helper,omitempty"`
}

// Run asks the helper how it is until ctx ends, and returns nil then.
func (c *Client) Run(ctx context.Context) error {
	tick := time.NewTicker(c.cfg.ProbeEvery)
	defer tick.Stop()
	for {
		_, err := c.Probe(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.note(err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Probe asks the helper how it is, within ClientConfig.ProbeWithin.
func (c *Client) Probe(ctx context.Context) (*Report, error) {
	within, cancel := context.WithTimeout(ctx, c.cfg.ProbeWithin)
	defer cancel()
	a, _, err := c.once(within, request{Act: actStatus}, nil)
	if err == nil {
		err = a.Error.local()
	}
	if err == nil && a.Status == nil {
		err = fmt.Errorf("%w: no status in the answer", ErrRequest)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = errHung
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoHelper, c.cfg.Socket, err)
	}
	c.mu.Lock()
	c.status.Helper = a.Status
	c.mu.Unlock()
	return a.Status, nil
}

// note takes the result of a probe.
func (c *Client) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if !c.status.Answers {
			c.status.Since = time.Now()
			c.cfg.Logger.Info("the helper that runs VMs answers", "socket", c.cfg.Socket, "version", c.status.Helper.Version)
		}
		c.status.Answers, c.status.Failure, c.hung = true, "", 0
		return
	}
	if c.status.Answers || c.status.Since.IsZero() {
		c.status.Since = time.Now()
		c.cfg.Logger.Warn("the helper that runs VMs does not answer: VMs that run go on", "error", err)
	}
	c.status.Answers, c.status.Failure = false, err.Error()
	// The requests of a helper that has ended are ended by that, and those of one that is about
	// to end are being done.
	if !errors.Is(err, errHung) {
		c.hung = 0
		return
	}
	if c.hung++; c.hung == maxHung {
		close(c.ended)
		c.ended = make(chan struct{})
	}
}

// usable returns what ends a request that begins now. A helper that stands still, or has not
// been there for longer than patience, is not asked: ErrNoHelper.
func (c *Client) usable() (ended <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := &c.status; c.hung >= maxHung || !s.Answers && !s.Since.IsZero() && time.Since(s.Since) > patience {
		return nil, fmt.Errorf("%w since %s: %s", ErrNoHelper, c.status.Since.UTC().Format(time.RFC3339), c.status.Failure)
	}
	return c.ended, nil
}

// Status returns what is known of the helper. It returns at once.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Trouble is what operators must know of the helper. It returns at once.
func (c *Client) Trouble() (lines []string) {
	s := c.Status()
	if !s.Answers && !s.Since.IsZero() {
		lines = append(lines, fmt.Sprintf("VMs of manifests that run go on, and none can be started, stopped or changed, since %s: %s (systemctl status rutter-vms says why; systemctl restart rutter-vms ends no VM)", s.Since.UTC().Format(time.RFC3339), s.Failure))
	}
	if s.Answers && s.Helper != nil {
		if err := c.folders.differ(s.Helper.Folders); err != nil {
			lines = append(lines, err.Error())
		}
		for _, line := range s.Helper.Trouble {
			lines = append(lines, "the helper that runs VMs: "+line)
		}
	}
	return lines
}
