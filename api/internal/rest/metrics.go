package rest

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests returns the counter of answered requests of a surface, by route, method
// and status; status is the name of that label.
func Requests(name, help, status string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"route", "method", status})
}

// Count counts an answer.
func Count(requests *prometheus.CounterVec, route, method string, status int) {
	requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
}

// KnownMethod returns the method, or "other": clients choose it, and the values of a
// label must be few.
func KnownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete:
		return method
	}
	return "other"
}
