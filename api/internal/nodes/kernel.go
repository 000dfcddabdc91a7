package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rutter/api/feedserver"
	"rutter/log"
	"rutter/log/feed"
	"rutter/projections/desired"
)

const (
	// kernelTime bounds the wait for one answer of a CN.
	kernelTime = 3 * time.Second
	// maxKernelAsks bounds the requests that ask CNs for their kernels at once.
	maxKernelAsks = 16
)

// AskKernels asks the CNs of kernels what their kernels have, twice, watch apart, and
// fills in the answers, or why there is none. It takes at most watch and twice
// kernelTime. A CN bounds by itself how often it looks.
func (s *Routes) AskKernels(ctx context.Context, kernels []desired.TraceKernel, watch time.Duration) {
	select {
	case s.kernelAsks <- struct{}{}:
		defer func() { <-s.kernelAsks }()
	default:
		for i := range kernels {
			kernels[i].Unknown = "this server asks compute nodes for others, as many as it may at once: try again"
		}
		return
	}
	var asking sync.WaitGroup
	defer asking.Wait()
	for i := range kernels {
		asking.Go(func() { s.askKernel(ctx, &kernels[i], watch) })
	}
}

func (s *Routes) askKernel(ctx context.Context, k *desired.TraceKernel, watch time.Duration) {
	first, err := s.kernelOf(ctx, k)
	if err != nil {
		k.Unknown = err.Error()
		return
	}
	k.Between(nil, first)
	if watch <= 0 {
		return
	}
	select {
	case <-time.After(watch):
	case <-ctx.Done():
		k.Unknown = ctx.Err().Error()
		return
	}
	last, err := s.kernelOf(ctx, k)
	if err != nil {
		k.Unknown = err.Error()
		return
	}
	k.Between(first, last)
}

// kernelOf asks a CN once. It trusts nothing of the answer.
func (s *Routes) kernelOf(ctx context.Context, k *desired.TraceKernel) (*desired.KernelView, error) {
	answer, err := s.askOnce(ctx, k.CN, k.Query.Path())
	if err != nil {
		return nil, err
	}
	return viewOf(k.CN, k.NIC, answer)
}

// askOnce asks the agent of a CN for a path, for at most kernelTime.
func (s *Routes) askOnce(ctx context.Context, cn log.UUID, path string) (*feed.Response, error) {
	if s.cfg.VMMs == nil {
		return nil, errors.New("this server asks no compute nodes")
	}
	ctx, cancel := context.WithTimeout(ctx, kernelTime)
	defer cancel()
	answer, err := s.cfg.VMMs.AskConnected(ctx, cn, &feed.Request{Method: http.MethodGet, Path: path})
	if err != nil {
		return nil, fmt.Errorf("CN %s does not answer: no server has a session of it, or it is late (at most %s)", cn, kernelTime)
	}
	return answer, nil
}

// viewOf decodes an agent's answer about its kernel.
func viewOf(cn log.UUID, nic log.MAC, answer *feed.Response) (*desired.KernelView, error) {
	if err := refusalOf(cn, "its kernel", answer); err != nil {
		return nil, err
	}
	v := new(desired.KernelView)
	if err := json.Unmarshal(answer.Body, v); err != nil {
		return nil, fmt.Errorf("the agent of CN %s answers with what is no view of a kernel", cn)
	}
	if v.NIC != nic {
		return nil, fmt.Errorf("the agent of CN %s answers about another NIC, %s", cn, v.NIC)
	}
	v.Bound(feedserver.Printable)
	return v, nil
}
