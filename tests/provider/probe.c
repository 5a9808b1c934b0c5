/*
 * probe ENDPOINT - asks the endpoint as a mount does before it is ready and prints one line:
 * "ok", or the errno's name, the kind of failure as a number, the status and the message.
 * SBX_TOKEN_FILE, SBX_CACERT, SBX_CERT, SBX_KEY and SBX_PROXY are its options.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/endpoint.h"
#include "client/errmap.h"
#include "client/provider.h"
#include "client/token.h"

int main(int argc, char **argv)
{
	const struct sbx_http_options options = {
		.cacert = getenv("SBX_CACERT"),
		.cert = getenv("SBX_CERT"),
		.key = getenv("SBX_KEY"),
		.proxy = getenv("SBX_PROXY"),
	};
	struct sbx_failure failure = { 0 };
	struct sbx_call call = { .stall_timeout_ms = 10000, .failure = &failure };
	struct sbx_provider *provider = NULL;
	struct sbx_endpoint *endpoint = NULL;
	struct sbx_token *token = NULL;
	const char *reason = "";
	int r;

	if (argc != 2)
		return 2;
	r = sbx_endpoint_parse(argv[1], &endpoint, &reason);
	if (r == 0)
		r = sbx_token_new(getenv("SBX_TOKEN_FILE"), &token);
	if (r == 0)
		r = sbx_provider_wire_new(endpoint, token, &options, &provider, &reason);
	if (r < 0) {
		printf("refused %s\n", reason);
	} else {
		r = provider->ops->probe(provider, &call);
		if (r == 0)
			printf("ok\n");
		else
			printf("%s %d %d %s\n", sbx_errno_name(-r), failure.kind,
			       failure.http_status, failure.message);
		provider->ops->free(provider);
	}
	sbx_token_free(token);
	sbx_endpoint_free(endpoint);
	return 0;
}
