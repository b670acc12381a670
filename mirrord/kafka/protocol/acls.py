"""Encodes and decodes DescribeAcls, CreateAcls and DeleteAcls (API keys 29 to 31, versions 2 and 3), for ACLs on
topics and groups.

The numeric codes are those of ResourceType and PatternType in org.apache.kafka.common.resource, and of AclOperation and
AclPermissionType in org.apache.kafka.common.acl.
"""

from collections.abc import Iterable

import msgspec

from mirrord.kafka.protocol.errors import Malformed
from mirrord.kafka.protocol.primitives import INT8, NO_TAGS, NULL, Reader, compact_array, compact_string
from mirrord.model.acls import AclRule, PatternKind, ResourceKind

RESOURCES: dict[ResourceKind, int] = {"TOPIC": 2, "GROUP": 3}
_PATTERNS: dict[PatternKind, int] = {"LITERAL": 3, "PREFIXED": 4}
_ANY = INT8.pack(1)
_OPERATIONS = {
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
_PERMISSIONS = {2: "DENY", 3: "ALLOW"}
_OPERATION_CODES = {name: code for code, name in _OPERATIONS.items()}
_PERMISSION_CODES = {name: code for code, name in _PERMISSIONS.items()}
_RESOURCE_NAMES: dict[int, ResourceKind] = {code: name for name, code in RESOURCES.items()}
_PATTERN_NAMES: dict[int, PatternKind] = {code: name for name, code in _PATTERNS.items()}


class DescribedAcls(msgspec.Struct, frozen=True):
    """The decoded DescribeAcls response. The error SECURITY_DISABLED means that the cluster has no authorizer."""

    error: int
    message: str | None
    rules: list[AclRule]


class AclAnswer(msgspec.Struct, frozen=True):
    """The broker's result for one ACL in a CreateAcls or DeleteAcls request."""

    error: int
    message: str | None
    removed: tuple[AclRule, ...] = ()


def encode_describe(resource: ResourceKind) -> bytes:
    """Encode the body of a DescribeAcls request for all ACLs on resources of this type."""
    any_name = any_principal = any_host = NULL
    return INT8.pack(RESOURCES[resource]) + any_name + _ANY + any_principal + any_host + _ANY + _ANY + NO_TAGS


def decode_describe(reader: Reader) -> DescribedAcls:
    """Decode a DescribeAcls response. Raises WireError."""
    reader.int32()  # throttle time
    error, message = reader.int16(), reader.compact_nullable_string()
    rules = [rule for rules in reader.compact_array(_resource) for rule in rules]
    reader.skip_tags()
    reader.expect_end()
    return DescribedAcls(error, message, rules)


def encode_create(rules: Iterable[AclRule]) -> bytes:
    """Encode the body of a CreateAcls request. The response contains one result for each ACL, in this order."""
    return compact_array(map(_rule_bytes, rules)) + NO_TAGS


def decode_create(reader: Reader) -> list[AclAnswer]:
    """Decode a CreateAcls response. Raises WireError."""
    reader.int32()  # throttle time
    answers = reader.compact_array(_created)
    reader.skip_tags()
    reader.expect_end()
    return answers


def encode_delete(rules: Iterable[AclRule]) -> bytes:
    """Encode the body of a DeleteAcls request that deletes exactly these ACLs. The response contains one result for
    each ACL, in this order."""
    return compact_array(map(_rule_bytes, rules)) + NO_TAGS


def decode_delete(reader: Reader) -> list[AclAnswer]:
    """Decode a DeleteAcls response. Raises WireError."""
    reader.int32()  # throttle time
    answers = reader.compact_array(_filtered)
    reader.skip_tags()
    reader.expect_end()
    return answers


def _rule_bytes(rule: AclRule) -> bytes:
    """Encode an ACL for a CreateAcls request, or a filter for a DeleteAcls request that matches only this ACL. Both
    have the same encoding."""
    return (
        INT8.pack(RESOURCES[rule.resource])
        + compact_string(rule.name)
        + INT8.pack(_PATTERNS[rule.pattern])
        + compact_string(rule.principal)
        + compact_string(rule.host)
        + INT8.pack(_code(_OPERATION_CODES, rule.operation))
        + INT8.pack(_code(_PERMISSION_CODES, rule.permission))
        + NO_TAGS
    )


def _code(codes: dict[str, int], name: str) -> int:
    return codes[name] if name in codes else int(name)


def _pattern(reader: Reader) -> tuple[ResourceKind, str, PatternKind]:
    resource, name, pattern = reader.int8(), reader.compact_string(), reader.int8()
    if resource not in _RESOURCE_NAMES or pattern not in _PATTERN_NAMES:
        raise Malformed(f"a rule about resource type {resource} with pattern type {pattern}, which was not requested")
    return _RESOURCE_NAMES[resource], name, _PATTERN_NAMES[pattern]


def _entry(reader: Reader) -> tuple[str, str, str, str]:
    principal, host = reader.compact_string(), reader.compact_string()
    operation, permission = reader.int8(), reader.int8()
    reader.skip_tags()
    names = _OPERATIONS.get(operation, str(operation)), _PERMISSIONS.get(permission, str(permission))
    return principal, host, *names


def _resource(reader: Reader) -> list[AclRule]:
    resource, name, pattern = _pattern(reader)
    rules = [AclRule(resource, pattern, name, *entry) for entry in reader.compact_array(_entry)]
    reader.skip_tags()
    return rules


def _created(reader: Reader) -> AclAnswer:
    answer = AclAnswer(reader.int16(), reader.compact_nullable_string())
    reader.skip_tags()
    return answer


def _filtered(reader: Reader) -> AclAnswer:
    error, message = reader.int16(), reader.compact_nullable_string()
    matches = reader.compact_array(_matching)
    reader.skip_tags()
    # Each filter in the request matches at most one ACL. If that ACL could not be deleted, its error becomes the error
    # of the result.
    for match_error, match_message, _ in matches:
        error, message = error or match_error, message or match_message
    return AclAnswer(error, message, tuple(rule for code, _, rule in matches if not code))


def _matching(reader: Reader) -> tuple[int, str | None, AclRule]:
    error, message = reader.int16(), reader.compact_nullable_string()
    resource, name, pattern = _pattern(reader)
    return error, message, AclRule(resource, pattern, name, *_entry(reader))
