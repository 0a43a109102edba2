# Varnish in front of the balancer: answers what is the same for all fans, for as long as the services say, and passes on
# everything else. Give the balancer the network of Varnish as `onsale deploy-config --trust`.
vcl 4.1;

backend balancer {
    .host = "127.0.0.1";
    .port = "8080";
}

sub vcl_recv {
    if (req.method == "GET" && req.url ~ "^/events/[A-Za-z0-9][A-Za-z0-9_-]{0,31}/(queue|sections)(\?.*)?$") {
        set req.url = regsub(req.url, "\?.*$", "");
        unset req.http.Cookie;
        unset req.http.Authorization;
        return (hash);
    }
    return (pass);
}

sub vcl_hash {
    hash_data(req.url);
    return (lookup);
}

sub vcl_backend_response {
    if (beresp.http.Cache-Control !~ "public") {
        set beresp.uncacheable = true;  # a refusal
    }
    set beresp.grace = 1s;  # one reader fetches it anew, the others get the last one meanwhile
}
