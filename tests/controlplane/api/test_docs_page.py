import re

import httpx

from controlplane.api.docs_page import PAGE


async def test_the_page_needs_no_other_site(client: httpx.AsyncClient) -> None:
    response = await client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in response.headers["content-security-policy"]
    assert not re.findall(r"(?:src|href)=[\"'](?!/)|https?:", PAGE)


def test_the_page_never_writes_markup_from_data() -> None:
    assert "innerHTML" not in PAGE
    assert "document.write" not in PAGE
