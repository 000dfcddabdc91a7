// Package pkiclient sends requests about certificates to servers: tokens, issued and
// revoked certificates, a compute node's first certificate and its next ones. It also
// makes the local authorities of rutter dev and rutter demo.
package pkiclient
