// Package openapi makes the OpenAPI document of a server's API (OpenAPI 3.1.1, which has
// the JSON Schemas of draft 2020-12) from the table of endpoints and the table of kinds.
//
// It owns what there is to say of an endpoint (About), the parameters that endpoints share,
// and the schemas of answers, which are made from the types that answers are written from.
// Which endpoints there are, and who may ask them, it is told.
//
// All of it is pure.
package openapi
