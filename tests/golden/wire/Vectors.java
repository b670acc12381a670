// Prints vectors.json: requests and answers as Kafka's own classes write them.
// java -cp kafka-clients-4.3.0.jar:slf4j-api-1.7.36.jar Vectors.java > vectors.json
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.MemoryRecords;

public class Vectors {
    static final Uuid ID = new Uuid(0x0102030405060708L, 0x090a0b0c0d0e0f10L);
    static final List<String> lines = new ArrayList<>();

    static void add(String name, Message message, int from, int to) {
        for (short version = (short) from; version <= to; version++) {
            ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            lines.add("  \"" + name + " " + version + "\": \"" + HexFormat.of().formatHex(bytes) + "\"");
        }
    }

    static MemoryRecords records(String text) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(text.getBytes()));
    }

    static FetchRequestData fetch(boolean byId) {
        FetchRequestData.FetchTopic topic = new FetchRequestData.FetchTopic().setPartitions(List.of(
            new FetchRequestData.FetchPartition().setPartition(3).setCurrentLeaderEpoch(7).setFetchOffset(1L << 40)
                .setLastFetchedEpoch(6).setPartitionMaxBytes(1 << 20),
            new FetchRequestData.FetchPartition().setPartition(4).setFetchOffset(0).setPartitionMaxBytes(1000)));
        FetchRequestData.ForgottenTopic forgotten = new FetchRequestData.ForgottenTopic().setPartitions(List.of(1, 2));
        if (byId) { topic.setTopicId(ID); forgotten.setTopicId(ID); }
        else { topic.setTopic("orders"); forgotten.setTopic("orders"); }
        return new FetchRequestData().setMaxWaitMs(250).setMinBytes(1).setMaxBytes(8 << 20).setIsolationLevel((byte) 1)
            .setSessionId(99).setSessionEpoch(5).setTopics(List.of(topic)).setForgottenTopicsData(List.of(forgotten));
    }

    static FetchResponseData fetched(boolean byId, boolean endpoints) {
        FetchResponseData.PartitionData full = new FetchResponseData.PartitionData().setPartitionIndex(3)
            .setHighWatermark(500).setLastStableOffset(400).setLogStartOffset(10)
            .setAbortedTransactions(List.of(
                new FetchResponseData.AbortedTransaction().setProducerId(4711).setFirstOffset(123)))
            .setPreferredReadReplica(-1).setRecords(records("records of three"));
        FetchResponseData.PartitionData moved = new FetchResponseData.PartitionData().setPartitionIndex(4)
            .setErrorCode((short) 6).setHighWatermark(-1).setRecords(MemoryRecords.EMPTY);
        moved.setCurrentLeader(new FetchResponseData.LeaderIdAndEpoch().setLeaderId(2).setLeaderEpoch(8));
        FetchResponseData.PartitionData diverged = new FetchResponseData.PartitionData().setPartitionIndex(5)
            .setHighWatermark(60).setRecords(null)
            .setDivergingEpoch(new FetchResponseData.EpochEndOffset().setEpoch(4).setEndOffset(77))
            .setSnapshotId(new FetchResponseData.SnapshotId().setEndOffset(1).setEpoch(1));
        FetchResponseData.FetchableTopicResponse topic = new FetchResponseData.FetchableTopicResponse()
            .setPartitions(List.of(full, moved, diverged));
        if (byId) topic.setTopicId(ID); else topic.setTopic("orders");
        FetchResponseData data = new FetchResponseData().setThrottleTimeMs(12).setSessionId(99)
            .setResponses(List.of(topic));
        if (endpoints) {
            FetchResponseData.NodeEndpointCollection nodes = new FetchResponseData.NodeEndpointCollection();
            nodes.add(new FetchResponseData.NodeEndpoint().setNodeId(2).setHost("two").setPort(9092));
            data.setNodeEndpoints(nodes);
        }
        return data;
    }

    static ProduceRequestData produce(boolean byId) {
        ProduceRequestData.TopicProduceDataCollection topics = new ProduceRequestData.TopicProduceDataCollection();
        ProduceRequestData.TopicProduceData first = new ProduceRequestData.TopicProduceData().setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records("batch of zero")),
            new ProduceRequestData.PartitionProduceData().setIndex(9).setRecords(records("x".repeat(200)))));
        ProduceRequestData.TopicProduceData second = new ProduceRequestData.TopicProduceData().setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(1).setRecords(records("batch of another"))));
        if (byId) { first.setTopicId(ID); second.setTopicId(new Uuid(5, 6)); }
        else { first.setName("orders"); second.setName("payments"); }
        topics.add(first);
        topics.add(second);
        return new ProduceRequestData().setAcks((short) -1).setTimeoutMs(10000).setTopicData(topics);
    }

    static ProduceResponseData produced(boolean byId, boolean leader) {
        ProduceResponseData.TopicProduceResponseCollection topics =
            new ProduceResponseData.TopicProduceResponseCollection();
        ProduceResponseData.PartitionProduceResponse moved = new ProduceResponseData.PartitionProduceResponse()
            .setIndex(2).setErrorCode((short) 6).setBaseOffset(-1);
        if (leader)
            moved.setCurrentLeader(new ProduceResponseData.LeaderIdAndEpoch().setLeaderId(2).setLeaderEpoch(8));
        ProduceResponseData.TopicProduceResponse topic = new ProduceResponseData.TopicProduceResponse()
            .setPartitionResponses(List.of(
                new ProduceResponseData.PartitionProduceResponse().setIndex(0).setBaseOffset(1L << 33)
                    .setLogAppendTimeMs(1_700_000_000_000L).setLogStartOffset(17),
                new ProduceResponseData.PartitionProduceResponse().setIndex(1).setErrorCode((short) 87).setBaseOffset(-1)
                    .setErrorMessage("one is wrong").setRecordErrors(List.of(
                        new ProduceResponseData.BatchIndexAndErrorMessage().setBatchIndex(3)
                            .setBatchIndexErrorMessage("no key"))),
                moved));
        if (byId) topic.setTopicId(ID); else topic.setName("orders");
        topics.add(topic);
        return new ProduceResponseData().setResponses(topics).setThrottleTimeMs(3);
    }

    static MetadataResponseData metadata() {
        MetadataResponseData.MetadataResponseBrokerCollection brokers =
            new MetadataResponseData.MetadataResponseBrokerCollection();
        brokers.add(new MetadataResponseData.MetadataResponseBroker().setNodeId(1).setHost("one").setPort(9092));
        brokers.add(new MetadataResponseData.MetadataResponseBroker().setNodeId(2).setHost("two").setPort(9093)
            .setRack("r2"));
        MetadataResponseData.MetadataResponseTopicCollection topics =
            new MetadataResponseData.MetadataResponseTopicCollection();
        topics.add(new MetadataResponseData.MetadataResponseTopic().setName("orders").setTopicId(ID).setPartitions(List.of(
            new MetadataResponseData.MetadataResponsePartition().setPartitionIndex(0).setLeaderId(2).setLeaderEpoch(8)
                .setReplicaNodes(List.of(2, 1)).setIsrNodes(List.of(2)).setOfflineReplicas(List.of(1)),
            new MetadataResponseData.MetadataResponsePartition().setPartitionIndex(1).setErrorCode((short) 5)
                .setLeaderId(-1).setReplicaNodes(List.of(1)).setIsrNodes(List.of()).setOfflineReplicas(List.of()))));
        topics.add(new MetadataResponseData.MetadataResponseTopic().setName("none").setErrorCode((short) 3));
        return new MetadataResponseData().setBrokers(brokers).setClusterId("cluster-1").setControllerId(1)
            .setTopics(topics);
    }

    static void others() {
        add("MetadataRequest by name", new MetadataRequestData().setAllowAutoTopicCreation(false).setTopics(
            List.of(new MetadataRequestData.MetadataRequestTopic().setName("orders"))), 11, 13);
        add("MetadataRequest by id", new MetadataRequestData().setAllowAutoTopicCreation(false).setTopics(
            List.of(new MetadataRequestData.MetadataRequestTopic().setName(null).setTopicId(ID))), 12, 13);
        add("MetadataRequest all", new MetadataRequestData().setAllowAutoTopicCreation(false).setTopics(null), 11, 13);
        add("MetadataResponse", metadata(), 11, 13);
        add("InitProducerIdRequest", new InitProducerIdRequestData().setTransactionalId(null).setTransactionTimeoutMs(60000), 3, 5);
        add("InitProducerIdResponse", new InitProducerIdResponseData().setProducerId(4711).setProducerEpoch((short) 1), 3, 5);
        add("DescribeProducersRequest", new DescribeProducersRequestData().setTopics(List.of(
            new DescribeProducersRequestData.TopicRequest().setName("orders").setPartitionIndexes(List.of(0, 5)))), 0, 0);
        add("DescribeProducersResponse", new DescribeProducersResponseData().setTopics(List.of(
            new DescribeProducersResponseData.TopicResponse().setName("orders").setPartitions(List.of(
                new DescribeProducersResponseData.PartitionResponse().setPartitionIndex(5).setActiveProducers(List.of(
                    new DescribeProducersResponseData.ProducerState().setProducerId(4711).setProducerEpoch(1)
                        .setLastSequence(99).setLastTimestamp(1_700_000_000_000L).setCoordinatorEpoch(-1))),
                new DescribeProducersResponseData.PartitionResponse().setPartitionIndex(6).setErrorCode((short) 3)
                    .setErrorMessage("not here"))))), 0, 0);
        add("ListTransactionsRequest", new ListTransactionsRequestData().setProducerIdFilters(List.of(4711L)), 0, 0);
        add("ListTransactionsResponse", new ListTransactionsResponseData().setUnknownStateFilters(List.of("Odd"))
            .setTransactionStates(List.of(new ListTransactionsResponseData.TransactionState()
                .setTransactionalId("payments-1").setProducerId(4711).setTransactionState("Ongoing"))), 0, 0);
        add("EndTxnRequest", new EndTxnRequestData().setTransactionalId("mirrord.f.dead.nobody").setProducerId(-1)
            .setProducerEpoch((short) -1), 3, 3);
        add("EndTxnResponse", new EndTxnResponseData().setErrorCode((short) 53), 3, 3);
        add("WriteTxnMarkersRequest", new WriteTxnMarkersRequestData().setMarkers(List.of(
            new WriteTxnMarkersRequestData.WritableTxnMarker().setProducerId(4711).setProducerEpoch((short) 1)
                .setTransactionResult(false).setCoordinatorEpoch(Integer.MAX_VALUE).setTopics(List.of(
                    new WriteTxnMarkersRequestData.WritableTxnMarkerTopic().setName("orders")
                        .setPartitionIndexes(List.of(5)))),
            new WriteTxnMarkersRequestData.WritableTxnMarker().setProducerId(1L << 40)
                .setProducerEpoch(Short.MAX_VALUE).setTransactionResult(false).setCoordinatorEpoch(7).setTopics(List.of(
                    new WriteTxnMarkersRequestData.WritableTxnMarkerTopic().setName("payments")
                        .setPartitionIndexes(List.of(0)))))), 1, 1);
        add("WriteTxnMarkersResponse", new WriteTxnMarkersResponseData().setMarkers(List.of(
            new WriteTxnMarkersResponseData.WritableTxnMarkerResult().setProducerId(4711).setTopics(List.of(
                new WriteTxnMarkersResponseData.WritableTxnMarkerTopicResult().setName("orders").setPartitions(List.of(
                    new WriteTxnMarkersResponseData.WritableTxnMarkerPartitionResult().setPartitionIndex(5),
                    new WriteTxnMarkersResponseData.WritableTxnMarkerPartitionResult().setPartitionIndex(6)
                        .setErrorCode((short) 47))))),
            new WriteTxnMarkersResponseData.WritableTxnMarkerResult().setProducerId(1L << 40).setTopics(List.of(
                new WriteTxnMarkersResponseData.WritableTxnMarkerTopicResult().setName("payments").setPartitions(List.of(
                    new WriteTxnMarkersResponseData.WritableTxnMarkerPartitionResult().setPartitionIndex(0)
                        .setErrorCode((short) 31))))))), 1, 1);
        add("ListOffsetsRequest", new ListOffsetsRequestData().setReplicaId(-1).setIsolationLevel((byte) 1).setTopics(List.of(
            new ListOffsetsRequestData.ListOffsetsTopic().setName("orders").setPartitions(List.of(
                new ListOffsetsRequestData.ListOffsetsPartition().setPartitionIndex(5).setTimestamp(-2)
                    .setCurrentLeaderEpoch(8))))), 6, 7);
        add("ListOffsetsResponse", new ListOffsetsResponseData().setTopics(List.of(
            new ListOffsetsResponseData.ListOffsetsTopicResponse().setName("orders").setPartitions(List.of(
                new ListOffsetsResponseData.ListOffsetsPartitionResponse().setPartitionIndex(5).setOffset(12)
                    .setTimestamp(1_700_000_000_000L).setLeaderEpoch(8))))), 6, 7);
        OffsetForLeaderEpochRequestData.OffsetForLeaderTopicCollection asked =
            new OffsetForLeaderEpochRequestData.OffsetForLeaderTopicCollection();
        asked.add(new OffsetForLeaderEpochRequestData.OffsetForLeaderTopic().setTopic("orders").setPartitions(List.of(
            new OffsetForLeaderEpochRequestData.OffsetForLeaderPartition().setPartition(5).setCurrentLeaderEpoch(8)
                .setLeaderEpoch(7))));
        add("OffsetForLeaderEpochRequest",
            new OffsetForLeaderEpochRequestData().setReplicaId(-1).setTopics(asked), 4, 4);
        OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResultCollection told =
            new OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResultCollection();
        told.add(new OffsetForLeaderEpochResponseData.OffsetForLeaderTopicResult().setTopic("orders").setPartitions(List.of(
            new OffsetForLeaderEpochResponseData.EpochEndOffset().setPartition(5).setLeaderEpoch(7).setEndOffset(123))));
        add("OffsetForLeaderEpochResponse", new OffsetForLeaderEpochResponseData().setTopics(told), 4, 4);
    }

    static void configs() {
        add("DescribeConfigsRequest", new DescribeConfigsRequestData().setResources(List.of(
            new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType((byte) 2).setResourceName("orders")
                .setConfigurationKeys(null),
            new DescribeConfigsRequestData.DescribeConfigsResource().setResourceType((byte) 2).setResourceName("none")
                .setConfigurationKeys(null))), 4, 4);
        add("DescribeConfigsResponse", new DescribeConfigsResponseData().setThrottleTimeMs(3).setResults(List.of(
            new DescribeConfigsResponseData.DescribeConfigsResult().setResourceType((byte) 2).setResourceName("orders")
                .setErrorMessage(null).setConfigs(List.of(
                    new DescribeConfigsResponseData.DescribeConfigsResourceResult().setName("cleanup.policy")
                        .setValue("compact").setConfigSource((byte) 1).setConfigType((byte) 7).setSynonyms(List.of(
                            new DescribeConfigsResponseData.DescribeConfigsSynonym().setName("log.cleanup.policy")
                                .setValue(null).setSource((byte) 5))),
                    new DescribeConfigsResponseData.DescribeConfigsResourceResult().setName("secret")
                        .setValue(null).setReadOnly(true).setIsSensitive(true).setConfigSource((byte) 5)
                        .setConfigType((byte) 2).setDocumentation("what it does"))),
            new DescribeConfigsResponseData.DescribeConfigsResult().setResourceType((byte) 2).setResourceName("none")
                .setErrorCode((short) 3).setErrorMessage("not here"))), 4, 4);
        IncrementalAlterConfigsRequestData.AlterableConfigCollection changes =
            new IncrementalAlterConfigsRequestData.AlterableConfigCollection();
        changes.add(new IncrementalAlterConfigsRequestData.AlterableConfig().setName("cleanup.policy")
            .setConfigOperation((byte) 0).setValue("compact"));
        changes.add(new IncrementalAlterConfigsRequestData.AlterableConfig().setName("retention.ms")
            .setConfigOperation((byte) 1).setValue(null));
        IncrementalAlterConfigsRequestData.AlterConfigsResourceCollection resources =
            new IncrementalAlterConfigsRequestData.AlterConfigsResourceCollection();
        resources.add(new IncrementalAlterConfigsRequestData.AlterConfigsResource().setResourceType((byte) 2)
            .setResourceName("orders").setConfigs(changes));
        add("IncrementalAlterConfigsRequest",
            new IncrementalAlterConfigsRequestData().setValidateOnly(true).setResources(resources), 1, 1);
        add("IncrementalAlterConfigsResponse", new IncrementalAlterConfigsResponseData().setResponses(List.of(
            new IncrementalAlterConfigsResponseData.AlterConfigsResourceResponse().setResourceType((byte) 2)
                .setResourceName("orders").setErrorMessage(null),
            new IncrementalAlterConfigsResponseData.AlterConfigsResourceResponse().setResourceType((byte) 2)
                .setResourceName("none").setErrorCode((short) 40).setErrorMessage("no such setting"))), 1, 1);
        add("DeleteTopicsRequest", new DeleteTopicsRequestData().setTimeoutMs(4000).setTopics(List.of(
            new DeleteTopicsRequestData.DeleteTopicState().setName(null).setTopicId(ID))), 6, 6);
        DeleteTopicsResponseData.DeletableTopicResultCollection deleted =
            new DeleteTopicsResponseData.DeletableTopicResultCollection();
        deleted.add(new DeleteTopicsResponseData.DeletableTopicResult().setName("orders").setTopicId(ID)
            .setErrorCode((short) 41).setErrorMessage("ask another broker"));
        add("DeleteTopicsResponse", new DeleteTopicsResponseData().setResponses(deleted), 6, 6);
    }

    static void acls() {
        add("DescribeAclsRequest", new DescribeAclsRequestData().setResourceTypeFilter((byte) 2)
            .setResourceNameFilter(null).setPatternTypeFilter((byte) 1).setPrincipalFilter(null).setHostFilter(null)
            .setOperation((byte) 1).setPermissionType((byte) 1), 2, 3);
        add("DescribeAclsResponse", new DescribeAclsResponseData().setErrorMessage(null).setResources(List.of(
            new DescribeAclsResponseData.DescribeAclsResource().setResourceType((byte) 2).setResourceName("orders")
                .setPatternType((byte) 4).setAcls(List.of(
                    new DescribeAclsResponseData.AclDescription().setPrincipal("User:a").setHost("*")
                        .setOperation((byte) 3).setPermissionType((byte) 3),
                    new DescribeAclsResponseData.AclDescription().setPrincipal("User:b").setHost("10.0.0.1")
                        .setOperation((byte) 99).setPermissionType((byte) 2))))), 2, 3);
        add("CreateAclsRequest", new CreateAclsRequestData().setCreations(List.of(
            new CreateAclsRequestData.AclCreation().setResourceType((byte) 3).setResourceName("billing")
                .setResourcePatternType((byte) 3).setPrincipal("User:a").setHost("*").setOperation((byte) 2)
                .setPermissionType((byte) 3),
            new CreateAclsRequestData.AclCreation().setResourceType((byte) 2).setResourceName("orders")
                .setResourcePatternType((byte) 4).setPrincipal("User:b").setHost("10.0.0.1").setOperation((byte) 99)
                .setPermissionType((byte) 2))), 2, 3);
        add("CreateAclsResponse", new CreateAclsResponseData().setResults(List.of(
            new CreateAclsResponseData.AclCreationResult().setErrorMessage(null),
            new CreateAclsResponseData.AclCreationResult().setErrorCode((short) 42).setErrorMessage("no"))), 2, 3);
        add("DeleteAclsRequest", new DeleteAclsRequestData().setFilters(List.of(
            new DeleteAclsRequestData.DeleteAclsFilter().setResourceTypeFilter((byte) 3).setResourceNameFilter("billing")
                .setPatternTypeFilter((byte) 3).setPrincipalFilter("User:a").setHostFilter("*").setOperation((byte) 2)
                .setPermissionType((byte) 3))), 2, 3);
        DeleteAclsResponseData.DeleteAclsMatchingAcl match = new DeleteAclsResponseData.DeleteAclsMatchingAcl()
            .setErrorMessage(null).setResourceType((byte) 3).setResourceName("billing").setPatternType((byte) 3)
            .setPrincipal("User:a").setHost("*").setOperation((byte) 2).setPermissionType((byte) 3);
        add("DeleteAclsResponse", new DeleteAclsResponseData().setFilterResults(List.of(
            new DeleteAclsResponseData.DeleteAclsFilterResult().setErrorMessage(null).setMatchingAcls(List.of(match)),
            new DeleteAclsResponseData.DeleteAclsFilterResult().setErrorMessage(null).setMatchingAcls(List.of(
                match.duplicate().setErrorCode((short) 31).setErrorMessage("may not"))))), 2, 3);
    }

    static void quotas() {
        add("DescribeClientQuotasRequest", new DescribeClientQuotasRequestData().setComponents(List.of())
            .setStrict(false), 1, 1);
        DescribeClientQuotasResponseData.EntityData ada = new DescribeClientQuotasResponseData.EntityData()
            .setEntityType("user").setEntityName("ada");
        DescribeClientQuotasResponseData.EntityData anyClient = new DescribeClientQuotasResponseData.EntityData()
            .setEntityType("client-id").setEntityName(null);
        DescribeClientQuotasResponseData.ValueData rate = new DescribeClientQuotasResponseData.ValueData()
            .setKey("producer_byte_rate").setValue(1048576);
        add("DescribeClientQuotasResponse", new DescribeClientQuotasResponseData().setThrottleTimeMs(3)
            .setErrorMessage(null).setEntries(List.of(
                new DescribeClientQuotasResponseData.EntryData().setEntity(List.of(ada, anyClient))
                    .setValues(List.of(rate, rate.duplicate().setKey("request_percentage").setValue(12.5))),
                new DescribeClientQuotasResponseData.EntryData().setEntity(List.of(ada.duplicate()))
                    .setValues(List.of(rate.duplicate())))), 1, 1);
        add("DescribeClientQuotas refused", new DescribeClientQuotasResponseData().setErrorCode((short) 31)
            .setErrorMessage("may not").setEntries(null), 1, 1);
    }

    static void cluster() {
        DescribeClusterResponseData data = new DescribeClusterResponseData().setThrottleTimeMs(3).setErrorMessage(null)
            .setClusterId("a-cluster").setControllerId(2).setClusterAuthorizedOperations(1 << 8 | 1 << 10);
        data.brokers().add(new DescribeClusterResponseData.DescribeClusterBroker().setBrokerId(2).setHost("two")
            .setPort(9092).setRack(null));
        add("DescribeClusterRequest", new DescribeClusterRequestData().setIncludeClusterAuthorizedOperations(true), 0, 0);
        add("DescribeClusterResponse", data, 0, 0);
    }

    static void quorum() {
        DescribeQuorumRequestData.TopicData topic = new DescribeQuorumRequestData.TopicData()
            .setTopicName("__cluster_metadata")
            .setPartitions(List.of(new DescribeQuorumRequestData.PartitionData().setPartitionIndex(0)));
        add("DescribeQuorumRequest", new DescribeQuorumRequestData().setTopics(List.of(topic)), 1, 1);
        DescribeQuorumResponseData.ReplicaState follower = new DescribeQuorumResponseData.ReplicaState()
            .setReplicaId(1).setLogEndOffset(90).setLastFetchTimestamp(1699999999000L)
            .setLastCaughtUpTimestamp(1699999998000L);
        DescribeQuorumResponseData.ReplicaState leader = new DescribeQuorumResponseData.ReplicaState()
            .setReplicaId(2).setLogEndOffset(99).setLastFetchTimestamp(1700000000000L)
            .setLastCaughtUpTimestamp(1700000000000L);
        DescribeQuorumResponseData.PartitionData partition = new DescribeQuorumResponseData.PartitionData()
            .setPartitionIndex(0).setLeaderId(2).setLeaderEpoch(7).setHighWatermark(98)
            .setCurrentVoters(List.of(follower, leader)).setObservers(List.of(follower.duplicate().setReplicaId(3)));
        add("DescribeQuorumResponse", new DescribeQuorumResponseData().setTopics(List.of(
            new DescribeQuorumResponseData.TopicData().setTopicName("__cluster_metadata")
                .setPartitions(List.of(partition)))), 1, 1);
    }

    public static void main(String[] args) {
        add("FetchRequest", fetch(false), 12, 12);
        add("FetchRequest", fetch(true), 13, 18);
        add("FetchResponse", fetched(false, false), 12, 12);
        add("FetchResponse", fetched(true, false), 13, 15);
        add("FetchResponse", fetched(true, true), 16, 18);
        add("ProduceRequest", produce(false), 9, 12);
        add("ProduceRequest", produce(true), 13, 13);
        add("ProduceResponse", produced(false, false), 9, 9);
        add("ProduceResponse", produced(false, true), 10, 12);
        add("ProduceResponse", produced(true, true), 13, 13);
        others();
        configs();
        acls();
        quotas();
        cluster();
        quorum();
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }
}
