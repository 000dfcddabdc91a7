package overview

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// SampleEvery is the time between two samples of the history: fine enough that a burst of a
// minute is seen, and 360 of them are an hour.
const SampleEvery = 10 * time.Second

const samples = int(Span / SampleEvery)

// HistoryForm has what was measured in the last hour, the oldest first, one number for each
// sample. A number is null where there was nothing to measure.
type HistoryForm struct {
	EveryMS int64 `json:"every_ms"` // milliseconds between two samples
	// Writes are entries, Refused changes that were decided against, each since the sample
	// before.
	Writes  []*float64 `json:"writes"`
	Refused []*float64 `json:"refused"`
	// RefusedCodes are the changes of the last hour that were sent to this server and
	// refused, by the code of the answer, the most first.
	RefusedCodes []CodeForm `json:"refused_codes"`
	// KernelMS is the 99th percentile, in milliseconds, of the time until a compute node
	// that is connected to this server had an entry in its kernel; see
	// rutter_programmed_seconds.
	KernelMS []*float64 `json:"kernel_ms"`
	// Behind are compute nodes whose lag was over BehindAfter.
	Behind []*float64 `json:"behind"`
}

// CodeForm counts refused changes by the code of the answer (docs/api.md).
type CodeForm struct {
	Code string `json:"code"`
	N    int    `json:"n"`
}

// sample is one moment of the history.
type sample struct {
	writes, refused, kernel, behind *float64
	codes                           map[string]float64 // refused by this server; the server bounds them
}

// ring keeps the last samples.
type ring struct {
	all  [samples]sample
	next int
	n    int
}

func (r *ring) add(s sample) {
	r.all[r.next] = s
	r.next = (r.next + 1) % samples
	r.n = min(r.n+1, samples)
}

func (r *ring) form() HistoryForm {
	f := HistoryForm{EveryMS: SampleEvery.Milliseconds(), Writes: []*float64{}, Refused: []*float64{}, KernelMS: []*float64{}, Behind: []*float64{}}
	for i := range r.n {
		s := r.all[(r.next+samples-r.n+i)%samples]
		f.Writes, f.Refused = append(f.Writes, s.writes), append(f.Refused, s.refused)
		f.KernelMS, f.Behind = append(f.KernelMS, s.kernel), append(f.Behind, s.behind)
	}
	f.RefusedCodes = r.codesSince(samples)
	return f
}

// codesSince adds the refused changes of the newest samples up by their codes, at most n of
// the samples.
func (r *ring) codesSince(n int) []CodeForm {
	sums := make(map[string]float64)
	for i := range min(n, r.n) {
		for code, rose := range r.all[(r.next+2*samples-1-i)%samples].codes {
			sums[code] += rose
		}
	}
	all := []CodeForm{}
	for code, rose := range sums {
		all = append(all, CodeForm{code, int(rose)})
	}
	slices.SortFunc(all, func(a, b CodeForm) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Code, b.Code)) })
	return all
}

// refusedSince adds the refused changes of the newest samples up, at most n of them.
func (r *ring) refusedSince(n int) (sum float64) {
	for i := range min(n, r.n) {
		if refused := r.all[(r.next+2*samples-1-i)%samples].refused; refused != nil {
			sum += *refused
		}
	}
	return sum
}

// The server's own metrics that samples are taken of.
const (
	metricProgrammed = "rutter_programmed_seconds"
	metricRefused    = "rutter_store_refused_total"
	metricEarly      = "rutter_store_refused_early_total"
	metricCodes      = "rutter_writes_refused_total" // of this server, by the label code
)

// meter reads the server's metrics, and says what they rose by since it was last read.
type meter struct {
	gatherer func() prometheus.Gatherer
	refused  float64
	codes    map[string]float64
	counts   []uint64 // of the histogram's buckets, cumulative
	read     bool
}

// take returns what was measured since the last call: the refused changes, also by code, and
// the 99th percentile of the time to the kernel in milliseconds; nil where there is nothing
// to measure.
func (m *meter) take() (s sample) {
	// An error names single collectors; the others were gathered.
	families, _ := m.gatherer().Gather()
	sum, known := 0.0, false
	codes := make(map[string]float64)
	var buckets []*dto.Bucket
	var total uint64
	for _, f := range families {
		switch f.GetName() {
		case metricRefused, metricEarly:
			for _, one := range f.GetMetric() {
				sum, known = sum+one.GetCounter().GetValue(), true
			}
		case metricCodes:
			for _, one := range f.GetMetric() {
				for _, label := range one.GetLabel() {
					codes[label.GetValue()] += one.GetCounter().GetValue()
				}
			}
		case metricProgrammed:
			for _, one := range f.GetMetric() {
				buckets, total = one.GetHistogram().GetBucket(), one.GetHistogram().GetSampleCount()
			}
		}
	}
	counts := make([]uint64, 0, len(buckets)+1)
	for _, b := range buckets {
		counts = append(counts, b.GetCumulativeCount())
	}
	counts = append(counts, total)
	before := m.counts
	if len(before) != len(counts) {
		before = make([]uint64, len(counts))
	}
	if m.read {
		s.codes = rises(m.codes, codes)
		s.kernel = quantile(buckets, before, counts)
		if known {
			rose := max(0, sum-m.refused)
			s.refused = &rose
		}
	}
	m.refused, m.codes, m.counts, m.read = sum, codes, counts, true
	return s
}

// rises are the counts that rose between two readings, and by how much; nil: none.
func rises(before, now map[string]float64) (rose map[string]float64) {
	for name, n := range now {
		if n > before[name] {
			if rose == nil {
				rose = make(map[string]float64)
			}
			rose[name] = n - before[name]
		}
	}
	return rose
}

// quantile is the 99th percentile of what was added between two readings of a histogram in
// seconds, as Prometheus' histogram_quantile estimates it, in milliseconds.
func quantile(buckets []*dto.Bucket, before, counts []uint64) *float64 {
	last := len(counts) - 1
	n := counts[last] - before[last]
	if counts[last] <= before[last] {
		return nil
	}
	rank := 0.99 * float64(n)
	lower, below := 0.0, 0.0
	for i, b := range buckets {
		in := float64(counts[i] - before[i])
		if in >= rank {
			at := 1000 * (lower + (b.GetUpperBound()-lower)*(rank-below)/(in-below))
			return &at
		}
		lower, below = b.GetUpperBound(), in
	}
	at := 1000 * lower // beyond the last bucket: at least that
	return &at
}
