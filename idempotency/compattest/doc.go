// Package compattest shows that the guard works under other people's routers, and
// measures it beside gofiber's. It is a module of its own, so that nobody who
// imports Keep downloads them.
package compattest
