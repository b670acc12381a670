// Prints groups.json: requests about groups, and records of __consumer_offsets, as Kafka's own classes write them.
// java -cp kafka-clients-4.3.0.jar:kafka-group-coordinator-4.3.0.jar:slf4j-api-1.7.36.jar GroupVectors.java > groups.json
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.coordinator.group.generated.*;

public class GroupVectors {
    static final Uuid ID = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);
    static final List<String> lines = new ArrayList<>();

    static void line(String name, ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        lines.add("  \"" + name + "\": \"" + HexFormat.of().formatHex(bytes) + "\"");
    }

    static void add(String name, Message message, int from, int to) {
        for (short version = (short) from; version <= to; version++)
            line(name + " " + version, MessageUtil.toByteBufferAccessor(message, version).buffer());
    }

    static void value(String name, Message message, int from, int to) {
        for (short version = (short) from; version <= to; version++)
            line(name + " " + version, ByteBuffer.wrap(MessageUtil.toVersionPrefixedBytes(version, message)));
    }

    static void key(String name, ApiMessage message) {
        line(name, ByteBuffer.wrap(MessageUtil.toCoordinatorTypePrefixedBytes(message)));
    }

    static void coordinators() {
        add("FindCoordinatorRequest", new FindCoordinatorRequestData().setKey("billing").setKeyType((byte) 0), 3, 3);
        add("FindCoordinatorRequest",
            new FindCoordinatorRequestData().setCoordinatorKeys(List.of("billing", "audit")).setKeyType((byte) 0), 4, 4);
        add("FindCoordinatorResponse",
            new FindCoordinatorResponseData().setThrottleTimeMs(3).setNodeId(2).setHost("two").setPort(9092), 3, 3);
        add("FindCoordinatorResponse", new FindCoordinatorResponseData().setCoordinators(List.of(
            new FindCoordinatorResponseData.Coordinator().setKey("billing").setNodeId(2).setHost("two").setPort(9092),
            new FindCoordinatorResponseData.Coordinator().setKey("audit").setNodeId(-1).setHost("").setPort(-1)
                .setErrorCode((short) 15).setErrorMessage("not now"))), 4, 4);
        add("ListGroupsRequest", new ListGroupsRequestData(), 4, 5);
        ListGroupsResponseData.ListedGroup old = new ListGroupsResponseData.ListedGroup().setGroupId("billing")
            .setProtocolType("consumer").setGroupState("Stable");
        ListGroupsResponseData.ListedGroup empty = new ListGroupsResponseData.ListedGroup().setGroupId("audit")
            .setProtocolType("").setGroupState("Empty");
        add("ListGroupsResponse", new ListGroupsResponseData().setGroups(List.of(old, empty)), 4, 4);
        add("ListGroupsResponse", new ListGroupsResponseData().setErrorCode((short) 15)
            .setGroups(List.of(old.duplicate().setGroupType("Classic"), empty.duplicate().setGroupType("Consumer"))), 5, 5);
    }

    static void offsets() {
        add("OffsetFetchRequest", new OffsetFetchRequestData().setGroupId("billing").setTopics(null), 7, 7);
        add("OffsetFetchRequest", new OffsetFetchRequestData().setGroups(List.of(
            new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId("billing").setTopics(null),
            new OffsetFetchRequestData.OffsetFetchRequestGroup().setGroupId("audit").setTopics(null))), 8, 8);
        add("OffsetFetchResponse", new OffsetFetchResponseData().setTopics(List.of(
            new OffsetFetchResponseData.OffsetFetchResponseTopic().setName("orders").setPartitions(List.of(
                new OffsetFetchResponseData.OffsetFetchResponsePartition().setPartitionIndex(0)
                    .setCommittedOffset(1L << 40).setCommittedLeaderEpoch(7).setMetadata("m"),
                new OffsetFetchResponseData.OffsetFetchResponsePartition().setPartitionIndex(1)
                    .setCommittedOffset(-1).setMetadata(""),
                new OffsetFetchResponseData.OffsetFetchResponsePartition().setPartitionIndex(2)
                    .setCommittedOffset(-1).setMetadata(null).setErrorCode((short) 88))))), 7, 7);
        add("OffsetFetchResponse", new OffsetFetchResponseData().setGroups(List.of(
            new OffsetFetchResponseData.OffsetFetchResponseGroup().setGroupId("billing").setTopics(List.of(
                new OffsetFetchResponseData.OffsetFetchResponseTopics().setName("orders").setPartitions(List.of(
                    new OffsetFetchResponseData.OffsetFetchResponsePartitions().setPartitionIndex(0)
                        .setCommittedOffset(1L << 40).setCommittedLeaderEpoch(7).setMetadata("m"))))),
            new OffsetFetchResponseData.OffsetFetchResponseGroup().setGroupId("audit").setErrorCode((short) 30))), 8, 8);
        add("OffsetCommitRequest", new OffsetCommitRequestData().setGroupId("billing")
            .setGenerationIdOrMemberEpoch(-1).setMemberId("").setGroupInstanceId(null).setTopics(List.of(
                new OffsetCommitRequestData.OffsetCommitRequestTopic().setName("eu.orders").setPartitions(List.of(
                    new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(0)
                        .setCommittedOffset(1L << 40).setCommittedLeaderEpoch(-1).setCommittedMetadata("m"),
                    new OffsetCommitRequestData.OffsetCommitRequestPartition().setPartitionIndex(3)
                        .setCommittedOffset(0).setCommittedLeaderEpoch(-1).setCommittedMetadata(""))))), 8, 8);
        add("OffsetCommitResponse", new OffsetCommitResponseData().setTopics(List.of(
            new OffsetCommitResponseData.OffsetCommitResponseTopic().setName("eu.orders").setPartitions(List.of(
                new OffsetCommitResponseData.OffsetCommitResponsePartition().setPartitionIndex(0),
                new OffsetCommitResponseData.OffsetCommitResponsePartition().setPartitionIndex(3)
                    .setErrorCode((short) 25))))), 8, 8);
        add("DeleteGroupsRequest", new DeleteGroupsRequestData().setGroupsNames(List.of("billing")), 2, 2);
        DeleteGroupsResponseData.DeletableGroupResultCollection deleted =
            new DeleteGroupsResponseData.DeletableGroupResultCollection();
        deleted.add(new DeleteGroupsResponseData.DeletableGroupResult().setGroupId("billing").setErrorCode((short) 69));
        add("DeleteGroupsResponse", new DeleteGroupsResponseData().setThrottleTimeMs(3).setResults(deleted), 2, 2);
    }

    static void records() {
        key("key of kind 0",
            new LegacyOffsetCommitKey().setGroup("billing").setTopic("orders").setPartition(3));
        key("key of kind 1",
            new OffsetCommitKey().setGroup("billing").setTopic("orders").setPartition(3));
        key("key of kind 2", new GroupMetadataKey().setGroup("billing"));
        key("key of kind 3",
            new ConsumerGroupMetadataKey().setGroupId("billing"));
        key("key of kind 5",
            new ConsumerGroupMemberMetadataKey().setGroupId("billing").setMemberId("one"));
        key("key of kind 17",
            new StreamsGroupMetadataKey().setGroupId("billing"));
        OffsetCommitValue value = new OffsetCommitValue().setOffset(1L << 40).setLeaderEpoch(7).setMetadata("m")
            .setCommitTimestamp(1700000000000L);
        value("OffsetCommitValue", value, 0, 0);
        value("OffsetCommitValue", value.duplicate().setExpireTimestamp(1800000000000L), 1, 1);
        value("OffsetCommitValue", value, 2, 3);
        value("OffsetCommitValue", value.duplicate().setTopicId(ID), 4, 4);
        value("OffsetCommitValue without a topic id", value, 4, 4);
        line("LegacyOffsetCommitValue 0", ByteBuffer.wrap(MessageUtil.toVersionPrefixedBytes((short) 0,
            new LegacyOffsetCommitValue().setOffset(1L << 40).setMetadata("m").setCommitTimestamp(1700000000000L))));
    }

    public static void main(String[] args) {
        coordinators();
        offsets();
        records();
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }
}
