package oracle

import (
	"strings"
	"time"

	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
)

// Renewed is within what time after all other trouble a compute node has a certificate that has not
// ended: it tries each second at first, and then less often.
const Renewed = 30 * time.Second

// certified looks for nodes whose certificates ended while nothing was wrong, or only folders of
// certificates.
func certified(p *past, report report) {
	under, over := make(map[history.Fault]bool), time.Duration(0) // other faults
	for _, r := range p.records {
		switch e := r.Event.(type) {
		case seen.Fault:
			client := strings.HasPrefix(e.Fault.On, "c") && !strings.HasPrefix(e.Fault.On, "cn")
			switch {
			case e.Fault.Kind == "" || e.Err != "" && !e.Over || e.Fault.Kind == history.Spoil || e.Fault.Kind == history.Meddle || client:
			case e.Over:
				delete(under, e.Fault)
				over = r.At
			default:
				under[e.Fault] = true
			}
		case seen.Agent:
			if e.Uncertified && len(under) == 0 && r.At > over+Renewed {
				report("the certificate of %s had ended at %v, and nothing kept it from getting another since %v", r.Who, r.At, over)
			}
		}
	}
}
