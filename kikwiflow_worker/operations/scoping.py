"""The services as one tenant may use them."""

from dataclasses import replace

from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.tenancy import Tenancy, TenantDefinitionStore, TenantRuntimeStore
from kikwiflow_worker.store.tenant_care import TenantRelayCare
from kikwiflow_worker.store.tenant_reads import (
    TenantReadStore,
    TenantRuleStore,
    TenantSearchStore,
)
from kikwiflow_worker.store.tenant_work import TenantBulkStore, TenantExternalWork


def scoped(services: Services, tenant_id: str | None) -> Services:
    """Return ``services`` with every port narrowed to one tenant; None may cross all of them. Made anew for each request."""
    if tenant_id is None:
        return services
    tenancy = Tenancy(tenant_id, services.runtime, services.reads)
    return replace(
        services,
        runtime=TenantRuntimeStore(services.runtime, tenancy),
        definitions=TenantDefinitionStore(services.definitions),
        reads=TenantReadStore(services.reads, tenancy),
        searches=TenantSearchStore(services.searches, tenant_id),
        rules=TenantRuleStore(services.rules),
        external_work=TenantExternalWork(services.external_work, tenant_id),
        bulk=TenantBulkStore(services.bulk, tenant_id),
        relay_care=TenantRelayCare(),
    )
