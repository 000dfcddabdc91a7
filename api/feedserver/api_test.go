package feedserver_test

import (
	"net/http"

	"rutter/api"
	"rutter/api/feedserver"
	"rutter/api/internal/apitest"
)

// store is a Memory as package api wants one.
type store struct{ *apitest.Memory }

func (s store) Status() api.Status { return api.Status{ID: "s1"} }

func init() {
	feedserver.SetAPI(func(m *apitest.Memory) (http.Handler, error) {
		s, err := api.New(api.Config{Store: store{m}})
		if err != nil {
			return nil, err
		}
		return s.Handler(), nil
	})
}
